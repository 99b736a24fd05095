"""The library, the schemas of configurations, queues and workers."""

from rest_framework import serializers

from webapp.api.serializers.common import FlagField, Strict


class PaperSerializer(serializers.Serializer):
    """Where a method comes from."""

    title = serializers.CharField()
    arxiv = serializers.CharField()
    authors = serializers.CharField()


class MethodSerializer(serializers.Serializer):
    """A method, as it can be put on top of a base algorithm."""

    slug = serializers.CharField()
    title = serializers.CharField()
    summary = serializers.CharField()
    paper = PaperSerializer()
    status = serializers.CharField(help_text="ready or experimental")
    derived = serializers.BooleanField(help_text="The paper leaves formulas open; ours are used.")
    problems = serializers.ListField(child=serializers.CharField())
    bases = serializers.ListField(child=serializers.CharField())
    needs = serializers.ListField(child=serializers.CharField())
    slots = serializers.ListField(child=serializers.CharField())
    conflicts = serializers.DictField(child=serializers.CharField())
    study = serializers.CharField(help_text="Verdict of the study that comes with it, computed from its numbers.")


class SignalSerializer(serializers.Serializer):
    """A chart that a method adds to the run's page."""

    slug = serializers.CharField()
    title = serializers.CharField()


class MethodDetailSerializer(MethodSerializer):
    """A method with the JSON schema of its parameters."""

    params = serializers.DictField()
    signals = SignalSerializer(many=True)


class MethodsSerializer(serializers.Serializer):
    """All methods."""

    methods = MethodSerializer(many=True)


class PresetSerializer(serializers.Serializer):
    """A base algorithm: a named row of settings."""

    slug = serializers.CharField()
    title = serializers.CharField()
    source = serializers.CharField()  # type: ignore[assignment]
    summary = serializers.CharField()
    values = serializers.DictField(help_text="Where it differs from the defaults.")


class PresetsSerializer(serializers.Serializer):
    """All base algorithms."""

    presets = PresetSerializer(many=True)


class TaskSerializer(serializers.Serializer):
    """A task with the JSON schema of its parameters."""

    name = serializers.CharField()
    title = serializers.CharField()
    description = serializers.CharField()
    checker_version = serializers.CharField()
    params = serializers.DictField()


class TasksSerializer(serializers.Serializer):
    """All tasks."""

    tasks = TaskSerializer(many=True)


class ConfigSchemaSerializer(serializers.Serializer):
    """The JSON schema of a run's configuration."""

    kind = serializers.CharField()
    config = serializers.DictField()


class QueueSerializer(serializers.Serializer):
    """What a run may name to be taken by some workers only."""

    name = serializers.CharField()
    served = serializers.BooleanField(help_text="Some worker takes runs from it now.")


class QueuesSerializer(serializers.Serializer):
    """All queues."""

    queues = QueueSerializer(many=True)


class WorkerSerializer(serializers.Serializer):
    """A worker process that is there now."""

    name = serializers.CharField()
    host = serializers.CharField()
    queues = serializers.ListField(child=serializers.CharField())
    slots = serializers.IntegerField(help_text="Runs at a time.")
    devices = serializers.ListField(child=serializers.CharField())
    draining = serializers.BooleanField(help_text="Takes nothing new.")
    started_at = serializers.DateTimeField()
    seen_at = serializers.DateTimeField()


class WorkersSerializer(serializers.Serializer):
    """All of them, by name."""

    workers = WorkerSerializer(many=True)


class WorkerChanges(Strict):
    """What is asked of a worker."""

    draining = FlagField()


class WaitingSerializer(serializers.Serializer):
    """A queued run."""

    place = serializers.IntegerField()
    run = serializers.CharField(source="run.pk", default=None, allow_null=True, help_text="null: of another team.")
    queue = serializers.CharField(source="attempt.run.queue")
    since = serializers.DateTimeField(source="attempt.created_at")
    why = serializers.CharField()


class WaitingListSerializer(serializers.Serializer):
    """All of them."""

    waiting = WaitingSerializer(many=True)
