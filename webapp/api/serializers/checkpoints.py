"""Checkpoints and their files."""

from typing import Any

from django.urls import reverse
from rest_framework import serializers

from webapp.api.serializers.common import FlagField, NameField, PageQuery, Strict, TextField
from webapp.checkpoints.models import Upload


class CheckpointsQuery(PageQuery):
    """Which checkpoints."""

    run = TextField(max_length=12, required=False, help_text="Only those of this run.")


class CheckpointSerializer(serializers.Serializer):
    """Saved by a run, or imported (`run` is null)."""

    id = serializers.IntegerField(source="pk")
    name = serializers.CharField()
    run = serializers.CharField(source="run_id", allow_null=True)
    attempt = serializers.IntegerField(allow_null=True)
    iteration = serializers.IntegerField(allow_null=True)
    final = serializers.BooleanField()
    available = serializers.BooleanField(help_text="Its files are there.")
    pinned = serializers.BooleanField(help_text="No retention removes it.")
    verified_at = serializers.DateTimeField(allow_null=True)
    damage = serializers.CharField(help_text="What the last verification found; empty: nothing.")
    metrics = serializers.DictField(help_text="Of the validation of these very weights.")
    policy_uri = serializers.CharField(help_text="What a configuration names as `policy.checkpoint`.")
    weights_hash = serializers.CharField()
    size_bytes = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    url = serializers.SerializerMethodField()

    def get_url(self, checkpoint: Any) -> str:
        return reverse("api:checkpoint", args=[*checkpoint.project.url_args, checkpoint.pk])


class FileSerializer(serializers.Serializer):
    """One file, as the checkpoint's manifest says."""

    name = serializers.CharField()
    size = serializers.IntegerField()
    sha256 = serializers.CharField()
    url = serializers.CharField()


class ImportBody(Strict):
    """A model on the server."""

    path = TextField(max_length=1000, help_text="A folder in the transformers layout, or a .gguf file; from the root.")
    name = NameField(required=False, help_text="Left out: the folder's or file's own.")


class CheckpointDetailSerializer(CheckpointSerializer):
    """A checkpoint with its files, and the runs that started from it."""

    files = FileSerializer(many=True, help_text="None when they were removed, or no manifest lists them.")
    used_by = serializers.ListField(child=serializers.CharField(), source="children")


class CheckpointChanges(Strict):
    """What people may change."""

    pinned = FlagField()


class RetentionQuery(Strict):
    """A rule to try."""

    keep = serializers.IntegerField(min_value=1, max_value=10_000, required=False, help_text="Newest of every run.")
    keep_best = serializers.IntegerField(min_value=0, max_value=10_000, required=False, help_text="Best of every run.")
    best_metric = TextField(max_length=80, required=False, help_text="The highest value is the best.")


class RetentionBody(Strict):
    """The project's rule."""

    keep = serializers.IntegerField(min_value=1, max_value=10_000, help_text="Newest of every run.")
    keep_best = serializers.IntegerField(min_value=0, max_value=10_000, help_text="Best of every run.")
    best_metric = NameField(max_length=80, help_text="The highest value is the best.")
    automatic = FlagField(help_text="The scheduler applies it once a day.")


class RuleSerializer(serializers.Serializer):
    """What is kept of every run."""

    keep = serializers.IntegerField()
    keep_best = serializers.IntegerField()
    best_metric = serializers.CharField()
    automatic = serializers.BooleanField()


class VerdictSerializer(serializers.Serializer):
    """What becomes of a checkpoint."""

    checkpoint = serializers.IntegerField(source="checkpoint.pk")
    run = serializers.CharField(source="checkpoint.run_id", allow_null=True)
    iteration = serializers.IntegerField(source="checkpoint.iteration", allow_null=True)
    goes = serializers.BooleanField()
    reasons = serializers.ListField(child=serializers.CharField(), help_text="Why it is kept.")


class RetentionSerializer(serializers.Serializer):
    """A rule, and what it would do to the checkpoints of runs that are over."""

    rule = RuleSerializer()
    verdicts = VerdictSerializer(many=True)
    bytes = serializers.IntegerField(help_text="That would be freed.")


class RemovedSerializer(serializers.Serializer):
    """Checkpoints whose files were removed."""

    removed = serializers.ListField(child=serializers.IntegerField())


class AnnouncedField(Strict):
    """A file that will be sent."""

    size = serializers.IntegerField(min_value=0, max_value=2**53)
    sha256 = serializers.RegexField(r"^[0-9a-f]{64}$")


class UploadBody(Strict):
    """A model's files, by name."""

    name = NameField()
    files = serializers.DictField(child=AnnouncedField())


class OffsetQuery(Strict):
    """Where the piece begins."""

    offset = serializers.IntegerField(min_value=0, max_value=2**53)


class OffsetSerializer(serializers.Serializer):
    """How far the file is now."""

    offset = serializers.IntegerField()


class UploadedFileSerializer(serializers.Serializer):
    """A file that was announced, and how far it is."""

    name = serializers.CharField()
    size = serializers.IntegerField()
    sha256 = serializers.CharField(allow_null=True, help_text="null: begun in a browser, which does not announce it.")
    offset = serializers.IntegerField()


class UploadSerializer(serializers.Serializer):
    """A model on its way."""

    id = serializers.CharField()
    name = serializers.CharField()
    state = serializers.ChoiceField(Upload.State.values)
    message = serializers.CharField()
    checkpoint = serializers.IntegerField(allow_null=True, help_text="What it became.")
    files = UploadedFileSerializer(many=True)
    created_at = serializers.DateTimeField()
    url = serializers.CharField()


class UploadsSerializer(serializers.Serializer):
    """Models on their way."""

    uploads = UploadSerializer(many=True)
