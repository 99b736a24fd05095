"""Datasets, imports of files into them, their versions, and what used those."""

from typing import Any

from django.conf import settings
from django.db import models
from django.urls import reverse

from webapp.projects.models import Project
from webapp.runs.models import Run


class Dataset(models.Model):
    """A named collection of problems of a project. Its content is in its versions, which never change."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="datasets")
    name = models.CharField(max_length=80)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    archived_at = models.DateTimeField(null=True, blank=True, help_text="Not offered to new runs; nothing is removed.")

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "name"],
                name="one_name_per_dataset",
                violation_error_message="This project has a dataset with this name already.",
            )
        ]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("datasets:detail", args=(*self.project.url_args, self.pk))


class Version(models.Model):
    """One content of a dataset, known by its content hash; `uri` is its Parquet file in the file storage.

    `report` is what the import found (`trainer.data.importers.imports`), `mapping` how the file was read.
    """

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    content_hash = models.CharField(max_length=64)
    uri = models.CharField(max_length=400)
    sha256 = models.CharField(max_length=64, help_text="Of the file's bytes.")
    size_bytes = models.PositiveBigIntegerField()
    rows = models.PositiveBigIntegerField()
    mapping = models.JSONField()
    report = models.JSONField()
    filename = models.CharField(max_length=200)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["dataset", "-number"]
        constraints = [
            models.UniqueConstraint(fields=["dataset", "number"], name="one_number_per_version"),
            models.UniqueConstraint(fields=["dataset", "content_hash"], name="one_version_per_content"),
        ]

    def __str__(self) -> str:
        return f"{self.dataset.name} v{self.number}"

    @property
    def url_args(self) -> tuple[Any, ...]:
        return (*self.dataset.project.url_args, self.pk)

    def get_absolute_url(self) -> str:
        return reverse("datasets:version", args=self.url_args)


class ImportState(models.TextChoices):
    """Where an import stands."""

    RECEIVING = "receiving", "Being uploaded"
    MAPPING = "mapping", "Waits for its mapping"
    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    FINISHED = "finished", "Finished"
    FAILED = "failed", "Failed"


class Import(models.Model):
    """An uploaded file on its way to a version. `claim` is the token of the scheduler that imports it; without it nothing
    of the import may be written. `beats` counts its signs of life."""

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="imports")
    state = models.CharField(max_length=10, choices=ImportState.choices, default=ImportState.MAPPING)
    filename = models.CharField(max_length=200)
    uri = models.CharField(max_length=400, help_text="The uploaded file; removed when its version is there.")
    size_bytes = models.PositiveBigIntegerField()
    mapping = models.JSONField(null=True, blank=True)
    rows = models.PositiveBigIntegerField(default=0, help_text="Read so far.")
    share = models.FloatField(default=0, help_text="Of the file that is read, 0 to 1.")
    message = models.TextField(blank=True)
    broken = models.JSONField(null=True, blank=True, help_text="Broken rows of an import that was refused for them.")
    claim = models.CharField(max_length=32, blank=True)
    beats = models.PositiveBigIntegerField(default=0)
    version = models.ForeignKey(Version, on_delete=models.SET_NULL, null=True, blank=True, related_name="imports")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-pk"]
        indexes = [models.Index(fields=["state", "created_at"], name="import_by_state")]

    def __str__(self) -> str:
        return f"{self.filename} into {self.dataset_id}"

    @property
    def url_args(self) -> tuple[Any, ...]:
        return (*self.dataset.project.url_args, self.pk)

    @property
    def is_over(self) -> bool:
        return self.state in (ImportState.FINISHED, ImportState.FAILED)

    def get_absolute_url(self) -> str:
        """Its mapping while it waits for one, else its progress."""
        route = "datasets:mapping" if self.state == ImportState.MAPPING else "datasets:import"
        return reverse(route, args=self.url_args)


class DatasetUse(models.Model):
    """Lineage: the run's problems came from this version."""

    run = models.OneToOneField(Run, on_delete=models.CASCADE, related_name="dataset_use")
    version = models.ForeignKey(Version, on_delete=models.RESTRICT, related_name="uses")

    def __str__(self) -> str:
        return f"{self.version} in {self.run_id}"
