"""Series, points and axes of a run.

A point's table has no ORM object on the hot path: `webapp.metrics.services` writes and `webapp.metrics.selectors`
reads it with SQL that SQLite and PostgreSQL both understand. It is clustered by series (SQLite: WITHOUT ROWID;
PostgreSQL: a covering index), so that a chart reads one contiguous piece.
"""

from django.db import models

from webapp.runs.models import Run


class NonFinite(models.IntegerChoices):
    """What stands in place of a number; zero is an ordinary number."""

    FINITE = 0, ""
    NAN = 1, "nan"
    INF = 2, "inf"
    MINUS_INF = 3, "-inf"


class Series(models.Model):
    """One metric of one run, with its newest value, so that an overview needs no scan of points.

    `live_seq` is the run's live number of the newest write to the series.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="series")
    key = models.CharField(max_length=160)
    last_iteration = models.PositiveIntegerField(null=True)
    last_attempt = models.PositiveIntegerField(null=True)
    last_value = models.FloatField(null=True)
    last_nonfinite = models.PositiveSmallIntegerField(choices=NonFinite.choices, default=NonFinite.FINITE)
    live_seq = models.BigIntegerField(default=0)

    class Meta:
        verbose_name_plural = "series"
        ordering = ["key"]
        constraints = [models.UniqueConstraint(fields=["run", "key"], name="one_series_per_run_and_key")]

    def __str__(self) -> str:
        return self.key


class Point(models.Model):
    """One number (or `nonfinite`) of a series at an iteration, as one attempt logged it."""

    pk = models.CompositePrimaryKey("series_id", "iteration", "attempt")
    series = models.ForeignKey(Series, on_delete=models.DO_NOTHING, related_name="+", db_index=False)
    iteration = models.PositiveIntegerField()
    attempt = models.PositiveIntegerField()
    value = models.FloatField(null=True)
    nonfinite = models.PositiveSmallIntegerField(choices=NonFinite.choices, default=NonFinite.FINITE)
    live_seq = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.series_id}[{self.iteration}]"


class AxisRow(models.Model):
    """Where an iteration lies on every x axis, once for all series of the run. Counts are cumulative over all
    attempts.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="+", db_index=False)
    iteration = models.PositiveIntegerField()
    attempt = models.PositiveIntegerField()
    optimizer_step = models.PositiveBigIntegerField(default=0)
    phase = models.CharField(max_length=60, blank=True)
    policy_version = models.PositiveBigIntegerField(default=0)
    prompts = models.PositiveBigIntegerField(default=0)
    rollouts = models.PositiveBigIntegerField(default=0)
    sampled_tokens = models.PositiveBigIntegerField(default=0)
    trained_tokens = models.PositiveBigIntegerField(default=0)
    discarded_tokens = models.PositiveBigIntegerField(default=0)
    evaluation_tokens = models.PositiveBigIntegerField(default=0)
    device_seconds = models.FloatField(default=0.0)
    time = models.DateTimeField()
    live_seq = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "iteration", "attempt"], name="one_axis_row_per_iteration")
        ]
        indexes = [models.Index(fields=["run", "live_seq"], name="axis_by_seq")]

    def __str__(self) -> str:
        return f"{self.run_id}[{self.iteration}]"
