"""Files that are nobody's, and rows without files."""

from django.urls import reverse
from rest_framework import serializers

from webapp.api.serializers.common import Strict, TextField
from webapp.checkpoints.models import Checkpoint
from webapp.files.orphans import Missing, is_due
from webapp.files.owners import Verdict


class OrphanSerializer(serializers.Serializer):
    """Files with a common fate that no row names."""

    uri = serializers.CharField(source="unit.uri")
    why = serializers.CharField()
    files = serializers.IntegerField(source="unit.files")
    bytes = serializers.IntegerField(source="unit.size")
    changed_at = serializers.DateTimeField(source="unit.newest", help_text="The last change of any of them.")
    due = serializers.SerializerMethodField(help_text="Has lain still for a day, and can be removed.")

    def get_due(self, verdict: Verdict) -> bool:
        return is_due(verdict)


class MissingSerializer(serializers.Serializer):
    """A row whose files are not there."""

    url = serializers.SerializerMethodField(help_text="Of the checkpoint, or of the version of a dataset.")
    uri = serializers.CharField()
    why = serializers.CharField()

    def get_url(self, missing: Missing) -> str:
        route = "api:checkpoint" if isinstance(missing.row, Checkpoint) else "api:dataset-version"
        return reverse(route, args=missing.row.url_args)


class OrphansSerializer(serializers.Serializer):
    """What the storage holds against what the rows say."""

    orphans = OrphanSerializer(many=True)
    missing = MissingSerializer(many=True)


class OrphansBody(Strict):
    """Which of the listed ones go."""

    uris = serializers.ListField(child=TextField(max_length=400), min_length=1, max_length=500)


class KeptSerializer(serializers.Serializer):
    """What was not removed, and why."""

    uri = serializers.CharField()
    why = serializers.CharField()


class OrphansRemovedSerializer(serializers.Serializer):
    """What became of each."""

    removed = serializers.ListField(child=serializers.CharField())
    kept = KeptSerializer(many=True)
