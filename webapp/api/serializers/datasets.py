"""Datasets: what is uploaded, imported and read."""

from typing import Any

from django.urls import reverse
from rest_framework import serializers

from webapp.api.serializers.common import FlagField, NameField, PageQuery, Strict, TextField
from webapp.datasets.models import ImportState

SPLITS = ("train", "validation", "test")


class DatasetsQuery(PageQuery):
    """Which datasets."""

    archived = FlagField(default=False, help_text="Those that are archived instead of the others.")


class DatasetSerializer(serializers.Serializer):
    """A named collection of problems; its content is in its versions."""

    id = serializers.IntegerField(source="pk")
    name = serializers.CharField()
    archived = serializers.SerializerMethodField(help_text="Not offered to new runs; nothing is removed.")
    created_at = serializers.DateTimeField()
    url = serializers.SerializerMethodField()

    def get_archived(self, dataset: Any) -> bool:
        return dataset.archived_at is not None

    def get_url(self, dataset: Any) -> str:
        return reverse("api:dataset", args=(*dataset.project.url_args, dataset.pk))


class DatasetBody(Strict):
    """A dataset without versions."""

    name = NameField(max_length=80)


class DatasetChanges(Strict):
    """Whether launch forms offer it."""

    archived = FlagField()


class UploadQuery(Strict):
    """What the file is called; the ending says what it is."""

    filename = TextField(max_length=200, help_text="With its ending: .jsonl, .json, .csv, .tsv, .parquet, …")


class ImportSerializer(serializers.Serializer):
    """An uploaded file on its way to a version."""

    id = serializers.IntegerField(source="pk")
    dataset = serializers.IntegerField(source="dataset_id")
    state = serializers.ChoiceField(ImportState.values)
    filename = serializers.CharField()
    size_bytes = serializers.IntegerField()
    mapping = serializers.DictField(allow_null=True)
    rows = serializers.IntegerField(help_text="Read so far.")
    share = serializers.FloatField(help_text="Of the file that is read, 0 to 1.")
    message = serializers.CharField()
    broken = serializers.DictField(allow_null=True, help_text="Broken rows of an import that was refused for them.")
    version = serializers.IntegerField(source="version_id", allow_null=True, help_text="What it became.")
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)
    url = serializers.SerializerMethodField()

    def get_url(self, job: Any) -> str:
        return reverse("api:dataset-import", args=job.url_args)


class DatasetDetailSerializer(DatasetSerializer):
    """A dataset with its imports that are not finished."""

    imports = ImportSerializer(many=True, source="unfinished")


class MappingBody(Strict):
    """How the file's columns become problems; left out: as recognised."""

    mapping = serializers.DictField(required=False, help_text="Like `recognised` of an inspection.")


class InspectionSerializer(serializers.Serializer):
    """What a file holds, and its first rows under a mapping."""

    files = serializers.ListField(child=serializers.CharField())
    format = serializers.CharField()
    title = serializers.CharField()
    columns = serializers.ListField(child=serializers.DictField(), help_text="path and a sample of each")
    mapping = serializers.DictField(help_text="The one that is shown.")
    recognised = serializers.DictField(help_text="The one that fits the columns best.")
    rows = serializers.ListField(
        child=serializers.DictField(), help_text="As they would be, or what is wrong with each."
    )
    choices = serializers.DictField(help_text="Values that a mapping may name.")


class VersionSerializer(serializers.Serializer):
    """One content of a dataset; it never changes."""

    id = serializers.IntegerField(source="pk")
    dataset = serializers.IntegerField(source="dataset_id")
    number = serializers.IntegerField()
    content_hash = serializers.CharField(help_text="What a configuration names as `task.params.content_hash`.")
    rows = serializers.IntegerField()
    size_bytes = serializers.IntegerField()
    sha256 = serializers.CharField(help_text="Of the Parquet file.")
    filename = serializers.CharField(help_text="Of the file that was uploaded.")
    created_at = serializers.DateTimeField()
    url = serializers.SerializerMethodField()

    def get_url(self, version: Any) -> str:
        return reverse("api:dataset-version", args=version.url_args)


class VersionDetailSerializer(VersionSerializer):
    """A version with what its import found."""

    mapping = serializers.DictField()
    report = serializers.DictField(help_text="Checks, splits, lengths, duplicates, overlaps.")
    runs = serializers.ListField(
        child=serializers.CharField(), source="run_ids", help_text="That used it, newest first."
    )


class RowsQuery(Strict):
    """Which rows."""

    page = serializers.IntegerField(min_value=1, max_value=2**31, default=1)
    search = TextField(max_length=200, required=False, help_text="In id, prompt, answer or solution, in any case.")
    split = serializers.ChoiceField(SPLITS, required=False)
    line = serializers.IntegerField(min_value=0, max_value=2**53, required=False, help_text="Only this line's row.")
    file = TextField(max_length=400, required=False, help_text="Of which file the line is.")


class RowsSerializer(serializers.Serializer):
    """A page of rows."""

    rows = serializers.ListField(child=serializers.DictField())
    page = serializers.IntegerField()
    pages = serializers.IntegerField()
    total = serializers.IntegerField(help_text="Rows of which this is a page.")
    searched = serializers.IntegerField(
        allow_null=True, help_text="Rows that were looked through before the time for a search was over; null: all."
    )
