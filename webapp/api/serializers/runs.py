"""Runs, their history, and what launches them."""

from typing import Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from webapp.api.openapi import LAUNCH_DOCUMENT
from webapp.api.serializers.common import NameField, PageQuery, Strict, TextField
from webapp.runlist.selectors import GROUP_LABELS
from webapp.runs.models import Run, RunKind
from webapp.runs.states import RunState

ORDERS = {"created": "created_at", "name": "name", "state": "state", "task": "task", "started": "started_at"}
STATE_FILTERS = [*GROUP_LABELS, *RunState.values]


class RunSerializer(serializers.Serializer):
    """A run and how far it is."""

    id = serializers.CharField()
    name = serializers.CharField()
    kind = serializers.ChoiceField(RunKind.values)
    state = serializers.ChoiceField(RunState.values)
    message = serializers.CharField(help_text="Why the run stands where it stands.")
    url = serializers.SerializerMethodField(help_text="The address of everything below it.")
    page = serializers.CharField(source="get_absolute_url", help_text="Where people see it.")
    methods = serializers.ListField(child=serializers.CharField())
    task = serializers.CharField()
    seed = serializers.IntegerField()
    tags = serializers.ListField(child=serializers.CharField())
    notes = serializers.CharField()
    base_checkpoint = serializers.CharField(allow_null=True, help_text="URI of the weights it starts from.")
    created_by = serializers.CharField(source="created_by.name", default=None, allow_null=True)
    parent = serializers.CharField(source="parent_id", allow_null=True)  # type: ignore[assignment]
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    queue = serializers.CharField(help_text="Which workers may take it.")
    auto_resume = serializers.IntegerField(
        allow_null=True, help_text="Automatic resumes in a row without progress; null: the installation's setting."
    )
    attempt = serializers.IntegerField(source="attempt_number", help_text="The only one that may still write.")
    iteration = serializers.IntegerField()
    total_iterations = serializers.IntegerField()
    stage = serializers.CharField()
    stage_done = serializers.IntegerField()
    stage_total = serializers.IntegerField()
    eta_seconds = serializers.FloatField(allow_null=True)
    phase = serializers.CharField()
    can_stop = serializers.BooleanField()
    can_resume = serializers.BooleanField()
    live_seq = serializers.IntegerField(help_text="Counts what became visible; the cursor of `changes` and `stream`.")

    def get_url(self, run: Run) -> str:
        return reverse("api:run", args=run.url_args)


class RunDetailSerializer(RunSerializer):
    """A run with its resolved configuration."""

    config = serializers.DictField(help_text="Every setting, as the trainer takes it; can be launched again.")
    versions = serializers.DictField(child=serializers.CharField(), help_text="Of code and packages.")


class RunsQuery(PageQuery):
    """Which runs."""

    state = serializers.ChoiceField(STATE_FILTERS, required=False)
    kind = serializers.ChoiceField(RunKind.values, required=False)
    method = TextField(max_length=120, required=False, help_text="Slug of a method or base algorithm.")
    tag = TextField(max_length=120, required=False)
    search = TextField(max_length=200, required=False, help_text="Words in name, task, method or id.")
    order = serializers.ChoiceField([sign + name for name in ORDERS for sign in ("", "-")], default="-created")


@extend_schema_field({"$ref": f"#/components/schemas/{LAUNCH_DOCUMENT}"})
class DocumentField(serializers.DictField):
    """A configuration, complete or not; `trainer.methods.resolve` says what is wrong with it."""


class DocumentBody(Strict):
    """A configuration to check."""

    config = DocumentField()


class LaunchBody(DocumentBody):
    """A run to launch."""

    name = TextField(max_length=120, required=False, allow_blank=True, help_text="Empty: method, task and seed.")
    tags = serializers.ListField(child=TextField(max_length=120), required=False, max_length=50)
    notes = TextField(max_length=10_000, required=False, allow_blank=True)
    queue = TextField(max_length=40, required=False, help_text="One of those that listQueues names.")
    auto_resume = serializers.IntegerField(
        min_value=0,
        max_value=100,
        required=False,
        allow_null=True,
        help_text="Automatic resumes in a row without progress; 0: never; null: the installation's setting.",
    )
    parent = TextField(  # type: ignore[assignment]
        max_length=12, required=False, allow_null=True, help_text="Id of the run whose configuration was edited."
    )


class CostSerializer(serializers.Serializer):
    """An upper bound: what is sampled or seen when nothing ends early."""

    title = serializers.CharField()
    count = serializers.IntegerField()
    unit = serializers.CharField()
    tokens = serializers.IntegerField(allow_null=True, help_text="Sampled tokens, each answer at its full length.")


class ResolvedSerializer(serializers.Serializer):
    """The configuration with everything filled in, and what speaks for a second look."""

    config = serializers.DictField()
    costs = CostSerializer(many=True)
    warnings = serializers.ListField(child=serializers.CharField(), help_text="Allowed, and still worth a thought.")


class RunChanges(Strict):
    """What people wrote about a run, and how often it is resumed automatically; what is left out stays."""

    name = NameField(required=False)
    tags = serializers.ListField(child=TextField(max_length=120), required=False, max_length=50)
    notes = TextField(max_length=10_000, required=False, allow_blank=True)
    auto_resume = serializers.IntegerField(
        min_value=0, max_value=100, required=False, allow_null=True, help_text="null: the installation's setting."
    )


class CopyBody(Strict):
    """What is otherwise than in the run that is copied."""

    changes = serializers.DictField(
        required=False, help_text="Merged into the configuration (RFC 7396): objects by key, null removes."
    )
    checkpoint = serializers.IntegerField(
        required=False, min_value=1, max_value=2**53, help_text="Starts from these weights of the project instead."
    )
    name = TextField(max_length=120, required=False, allow_blank=True, help_text="Empty: method, task and seed.")
    notes = TextField(max_length=10_000, required=False, allow_blank=True)


class ResumeBody(Strict):
    """Where the run goes on."""

    checkpoint = serializers.IntegerField(
        required=False, min_value=1, max_value=2**53, help_text="One of the run's; left out: its newest whole one."
    )


class AttemptSerializer(serializers.Serializer):
    """One trainer process of a run."""

    number = serializers.IntegerField()
    state = serializers.ChoiceField(RunState.values)
    superseded = serializers.BooleanField(help_text="A later attempt has taken over.")
    kept_until = serializers.IntegerField(
        allow_null=True, help_text="Of this attempt only iterations up to it still count; null: all."
    )
    worker = serializers.CharField()
    host = serializers.CharField()
    device = serializers.CharField()
    exit_code = serializers.IntegerField(allow_null=True)
    message = serializers.CharField()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    heartbeat_at = serializers.DateTimeField(allow_null=True)


class TransitionSerializer(serializers.Serializer):
    """One step of the state machine."""

    attempt = serializers.IntegerField()
    source = serializers.CharField(help_text="The state before; empty at the beginning.")  # type: ignore[assignment]
    target = serializers.ChoiceField(RunState.values)
    actor = serializers.CharField(source="actor_name")
    reason = serializers.CharField()
    at = serializers.DateTimeField()


class LogQuery(Strict):
    """How much of the log."""

    lines = serializers.IntegerField(min_value=1, max_value=2000, default=200)


class LogLineSerializer(serializers.Serializer):
    """A line that the trainer or its supervisor wrote."""

    attempt = serializers.IntegerField()
    time = serializers.DateTimeField()
    level = serializers.CharField()
    message = serializers.CharField()


class LogSerializer(serializers.Serializer):
    """The newest lines, oldest first."""

    lines = LogLineSerializer(many=True)


class ChangesQuery(Strict):
    """Since when."""

    after = serializers.IntegerField(
        min_value=0, max_value=2**62, default=0, help_text="`cursor` of the answer before; 0: from the beginning."
    )


class ChangesSerializer(serializers.Serializer):
    """What became visible after the cursor. Parts without anything new are left out."""

    cursor = serializers.IntegerField()
    run = serializers.DictField(help_text="State and progress.")
    reload = serializers.BooleanField(required=False, help_text="Too many points to send: ask for the series again.")
    rewind = serializers.IntegerField(required=False, help_text="Forget everything after this iteration first.")
    axes = serializers.ListField(child=serializers.DictField(), required=False)
    series = serializers.ListField(child=serializers.DictField(), required=False)
    phases = serializers.ListField(child=serializers.DictField(), required=False)
    marks = serializers.ListField(child=serializers.DictField(), required=False)
    logs = serializers.ListField(child=serializers.DictField(), required=False)
    drawn = serializers.ListField(child=serializers.DictField(), required=False)
    evaluations = serializers.ListField(child=serializers.DictField(), required=False)
    rollouts = serializers.ListField(child=serializers.IntegerField(), required=False)
    checkpoints = serializers.BooleanField(required=False)

    def to_representation(self, instance: Any) -> Any:
        return instance
