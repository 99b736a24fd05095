"""The index of rollouts."""

from django.db import models

from webapp.runs.models import Run


class RolloutPart(models.Model):
    """A Parquet file with an iteration's rollouts; `uri` is relative to the file storage."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="rollout_parts")
    attempt = models.PositiveIntegerField()
    iteration = models.PositiveIntegerField()
    uri = models.CharField(max_length=400)
    rows = models.PositiveIntegerField()
    live_seq = models.BigIntegerField()
    retired = models.BooleanField(default=False)

    class Meta:
        ordering = ["iteration", "attempt", "pk"]
        constraints = [models.UniqueConstraint(fields=["run", "attempt", "uri"], name="one_row_per_rollout_part")]
        indexes = [
            models.Index(fields=["run", "iteration"], name="part_by_iteration"),
            models.Index(fields=["run", "live_seq"], name="part_by_seq"),
        ]

    def __str__(self) -> str:
        return self.uri


class RolloutGroup(models.Model):
    """One prompt's `n` rollouts, `c` of them correct, at rows `first_row` to `first_row + n - 1` of the part."""

    part = models.ForeignKey(RolloutPart, on_delete=models.CASCADE, related_name="groups")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="+", db_index=False)
    iteration = models.PositiveIntegerField()
    uid = models.CharField(max_length=80)
    text = models.TextField()
    answer = models.TextField(null=True)
    n = models.PositiveIntegerField()
    c = models.PositiveIntegerField()
    first_row = models.PositiveIntegerField()
    mean_reward = models.FloatField(null=True)

    class Meta:
        ordering = ["iteration", "part", "first_row"]
        indexes = [
            models.Index(fields=["run", "iteration"], name="group_by_iteration"),
            models.Index(fields=["run", "uid", "iteration"], name="group_by_prompt"),
        ]

    def __str__(self) -> str:
        return f"{self.uid} at {self.iteration}"
