"""The workers that have signed in: who may take runs, and where."""

from django.db import models


class Worker(models.Model):
    """One `manage.py worker` process. The row outlives it, so that the page can say since when it is gone.

    `session` is the process that has the name now; another one with the same name takes it only when that is gone.
    """

    name = models.CharField(max_length=100, unique=True)
    session = models.CharField(max_length=32)
    host = models.CharField(max_length=120)
    pid = models.PositiveIntegerField()
    version = models.CharField(max_length=60, blank=True)
    queues = models.JSONField(default=list)
    slots = models.PositiveIntegerField(default=1)
    devices = models.JSONField(default=list, help_text="One for each slot; none: slots without a device.")
    draining = models.BooleanField(default=False, help_text="Finishes what it holds and takes nothing new.")
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    stopped_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
