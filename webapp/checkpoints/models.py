"""Checkpoints and what started from them."""

from django.db import models

from webapp.projects.models import Project
from webapp.runs.models import Run


class Checkpoint(models.Model):
    """A folder with weights in the file storage: saved by a run, or imported (`run` is null).

    `uri` is relative to the file storage. `policy_uri` is where the weights lie in the transformers layout: what a
    new run takes as its base. `removed_at`: retention took the files, the row stays for lineage.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="checkpoints")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="checkpoints", null=True, blank=True)
    attempt = models.PositiveIntegerField(null=True, blank=True)
    iteration = models.PositiveIntegerField(null=True, blank=True)
    name = models.CharField(max_length=120)
    uri = models.CharField(max_length=400)
    policy_uri = models.CharField(max_length=400)
    weights_hash = models.CharField(max_length=80)
    size_bytes = models.PositiveBigIntegerField(default=0)
    final = models.BooleanField(default=False)
    details = models.JSONField(default=dict, help_text="Of imported ones: where they came from, as their card says.")
    created_at = models.DateTimeField()
    removed_at = models.DateTimeField(null=True, blank=True)
    live_seq = models.BigIntegerField(default=0)
    retired = models.BooleanField(default=False)

    class Meta:
        ordering = ["-created_at", "-pk"]
        constraints = [models.UniqueConstraint(fields=["project", "uri"], name="one_row_per_checkpoint")]
        indexes = [models.Index(fields=["run", "live_seq"], name="checkpoint_by_seq")]

    def __str__(self) -> str:
        return self.name

    @property
    def available(self) -> bool:
        return self.removed_at is None and not self.retired


class RunInput(models.Model):
    """Lineage: the run started from this checkpoint."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="inputs")
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.CASCADE, related_name="used_by")
    role = models.CharField(max_length=20, default="base")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "role"], name="one_input_per_role")]

    def __str__(self) -> str:
        return f"{self.role} of {self.run_id}"
