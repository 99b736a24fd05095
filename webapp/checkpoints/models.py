"""Checkpoints and what started from them."""

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils import timezone

from webapp.projects.models import Project
from webapp.runs.models import Run


class Checkpoint(models.Model):
    """A folder with weights in the file storage: saved by a run, or imported (`run` is null).

    `uri` is relative to the file storage. `policy_uri` is where the weights lie in the transformers layout: what a
    new run takes as its base. `stored_at`: since when all its files are in the storage, the manifest last; until then
    they are only on the worker `stored_on`. `removed_at`: the files were removed, the row stays for lineage.
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
    metrics = models.JSONField(default=dict, help_text="Of the validation of these very weights.")
    pinned = models.BooleanField(default=False, help_text="No retention removes it.")
    stored_at = models.DateTimeField(null=True, blank=True, default=timezone.now)
    stored_on = models.CharField(max_length=120, blank=True)
    verified_at = models.DateTimeField(null=True, blank=True)
    damage = models.TextField(blank=True, help_text="What the last verification found: the file, found and expected.")
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
        """Whether its files can be read."""
        return self.removed_at is None and not self.retired and self.stored_at is not None

    @property
    def url_args(self) -> tuple[str, str, int]:
        """Arguments of every route below a checkpoint."""
        return *self.project.url_args, self.pk

    def get_absolute_url(self) -> str:
        return reverse("checkpoints:detail", args=self.url_args)


class RunInput(models.Model):
    """Lineage: the run started from this checkpoint (role "base"), or a person chose it for an attempt to go on from
    (role "resume <attempt>").
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="inputs")
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.CASCADE, related_name="used_by")
    role = models.CharField(max_length=20, default="base")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "role"], name="one_input_per_role")]

    def __str__(self) -> str:
        return f"{self.role} of {self.run_id}"


class Retention(models.Model):
    """A project's own rule on top of what each run's configuration says; `automatic`: the scheduler applies it."""

    project = models.OneToOneField(Project, on_delete=models.CASCADE, related_name="retention")
    keep = models.PositiveIntegerField(default=2, help_text="Newest checkpoints of every run.")
    keep_best = models.PositiveIntegerField(default=1, help_text="Best checkpoints of every run.")
    best_metric = models.CharField(max_length=80, default="eval/accuracy", help_text="The highest value is the best.")
    automatic = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"the {self.keep} newest and {self.keep_best} best of every run"


class Upload(models.Model):
    """A checkpoint that somebody is uploading, piece by piece. Its files lie below `uri` until it is complete.

    `files` is what was announced: name → size, and sha256 where the sender knows it. `state` ends as complete or refused.
    """

    class State(models.TextChoices):
        OPEN = "open", "Open"
        CHECKING = "checking", "Being checked"
        COMPLETE = "complete", "Complete"
        REFUSED = "refused", "Refused"

    id = models.CharField(primary_key=True, max_length=32, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="uploads")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    name = models.CharField(max_length=120)
    files = models.JSONField(default=dict)
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN)
    message = models.TextField(blank=True)
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    touched_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return self.name

    @property
    def size(self) -> int:
        return sum(entry["size"] for entry in self.files.values())
