"""Runs, attempts, transitions, and rows of events that have no table of their own."""

import secrets

from django.conf import settings
from django.db import models
from django.urls import reverse

from webapp.projects.models import Project
from webapp.runs.states import ACTIVE, OVER, RESUMABLE, RunState

_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"


def new_run_id() -> str:
    """Ten characters without look-alikes: 49 random bits, short enough for a link."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(10))


class RunKind(models.TextChoices):
    """What the trainer is asked to do."""

    RL = "rl", "Reinforcement learning"
    SFT = "sft", "Fine-tuning"
    EVALUATE = "evaluate", "Evaluation"


class Run(models.Model):
    """One piece of work of the trainer, with everything that defines it in `config` (the resolved document).

    `live_seq` counts the transactions that made something of the run visible; it is the cursor of the live stream and
    is only advanced under the row's lock. The progress fields are the newest the trainer sent.
    """

    id = models.CharField(primary_key=True, max_length=12, default=new_run_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="runs")
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=16, choices=RunKind.choices)
    config = models.JSONField()
    seed = models.BigIntegerField(default=0)
    methods = models.JSONField(default=list, help_text="Slugs, in the order in which they are composed.")
    task = models.CharField(max_length=60, blank=True)
    state = models.CharField(max_length=10, choices=RunState.choices, default=RunState.QUEUED)
    message = models.TextField(blank=True, help_text="Why the run stands where it stands.")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="runs"
    )
    parent = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, blank=True, related_name="children")
    tags = models.JSONField(default=list)
    notes = models.TextField(blank=True)
    versions = models.JSONField(default=dict, help_text="Of code and packages, as the trainer reported them.")
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    attempt_number = models.PositiveIntegerField(default=1, help_text="The only attempt that may still write.")
    queue = models.CharField(max_length=40, default="default", help_text="Which workers may take it.")
    auto_resume = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        help_text="Automatic resumes in a row without progress; none: the installation's setting.",
    )
    auto_resumes = models.PositiveSmallIntegerField(default=0, help_text="How many of them there were.")
    resumed_from = models.IntegerField(
        null=True, blank=True, help_text="Newest checkpoint at the last counted automatic resume; -1: there was none."
    )
    stop_requested_at = models.DateTimeField(null=True, blank=True)
    stop_requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )

    iteration = models.PositiveIntegerField(default=0)
    total_iterations = models.PositiveIntegerField(default=0)
    stage = models.CharField(max_length=60, blank=True)
    stage_done = models.PositiveBigIntegerField(default=0)
    stage_total = models.PositiveBigIntegerField(default=0)
    eta_seconds = models.FloatField(null=True, blank=True)
    phase = models.CharField(max_length=60, blank=True)
    live_seq = models.BigIntegerField(default=0)

    class Meta:
        ordering = ["-created_at", "id"]
        indexes = [
            models.Index(fields=["project", "-created_at"], name="run_by_project"),
            models.Index(fields=["project", "state"], name="run_by_state"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def url_args(self) -> tuple[str, str, str]:
        """Arguments of every route below a run."""
        return *self.project.url_args, self.id

    def get_absolute_url(self) -> str:
        return reverse("runpage:overview", args=self.url_args)

    @property
    def base_checkpoint(self) -> str | None:
        """URI (relative to the file storage) or path of the weights it starts from; None for fresh weights."""
        return (self.config.get("policy") or {}).get("checkpoint")

    @property
    def method_label(self) -> str:
        """What to call the run's method: its methods, else the base algorithm, else the kind."""
        if self.methods:
            return " + ".join(self.methods)
        if self.kind == RunKind.RL:
            return str((self.config.get("algorithm") or {}).get("preset", "grpo"))
        return self.kind

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE

    @property
    def is_over(self) -> bool:
        return self.state in OVER

    @property
    def can_stop(self) -> bool:
        return self.state == RunState.QUEUED or (self.state in ACTIVE and self.stop_requested_at is None)

    @property
    def can_resume(self) -> bool:
        return self.state in RESUMABLE

    @property
    def auto_resume_limit(self) -> int:
        """How often in a row it may be resumed automatically without reaching a new checkpoint; 0: never."""
        return int(settings.AUTO_RESUME) if self.auto_resume is None else self.auto_resume

    @property
    def progress(self) -> float | None:
        """Share of the iterations that are done, None before the trainer has said how many there are."""
        return min(1.0, self.iteration / self.total_iterations) if self.total_iterations else None


class Attempt(models.Model):
    """One trainer process of a run, with its own folder `attempts/<number>/`.

    `claim` is the token of the worker that holds it: every write of a supervisor names it, and is refused once it is
    gone. `beats` grows with every sign of life of its worker; the scheduler takes an attempt away whose `beats` stand
    still, by its own count of looks and never by comparing clocks. `heartbeat_at` is only shown. `kept_until` hides
    what later attempts repeat: of this attempt only iterations up to it are still part of the run.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=10, choices=RunState.choices, default=RunState.QUEUED)
    superseded = models.BooleanField(default=False)
    kept_until = models.IntegerField(null=True, blank=True, help_text="-1 hides all of it.")

    claim = models.CharField(max_length=32, blank=True)
    worker = models.CharField(max_length=120, blank=True, help_text="The worker's name and its slot.")
    host = models.CharField(max_length=120, blank=True)
    device = models.CharField(max_length=40, blank=True)
    pid = models.PositiveIntegerField(null=True, blank=True)
    beats = models.PositiveBigIntegerField(default=0)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    not_before = models.DateTimeField(null=True, blank=True, help_text="Pause before an automatic resume.")
    enqueued_at = models.DateTimeField(null=True, blank=True)
    messages_sent = models.PositiveIntegerField(default=0)

    byte_offset = models.BigIntegerField(default=0, help_text="Of events.jsonl, how much is in the database.")
    last_seq = models.JSONField(default=dict, help_text="Highest event number per writer.")
    exit_code = models.IntegerField(null=True, blank=True)
    message = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["run", "number"]
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="one_number_per_run")]
        indexes = [models.Index(fields=["state"], name="attempt_by_state")]

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.run_id}"


class Transition(models.Model):
    """One step of the state machine: who or what did it, and why."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="transitions")
    attempt = models.PositiveIntegerField()
    source = models.CharField(max_length=10, blank=True)
    target = models.CharField(max_length=10, choices=RunState.choices)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    actor_name = models.CharField(
        max_length=120, help_text="The person, the worker or the scheduler, as it was called then."
    )
    reason = models.TextField(blank=True)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.source or '∅'} → {self.target}"


OPAQUE = "opaque"


class EventRow(models.Model):
    """An event without a table of its own: phase, mark, log, state, histogram, heatmap, scatter, table, text; and those
    of kinds that this release does not know, kept closed as `OPAQUE` under the name of their kind.

    `payload` holds the event's own fields, without kind, key and axes. Log lines have no iteration and are never
    retired.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events")
    attempt = models.PositiveIntegerField()
    iteration = models.PositiveIntegerField(null=True)
    kind = models.CharField(max_length=16)
    key = models.CharField(max_length=160, blank=True)
    payload = models.JSONField(default=dict)
    time = models.DateTimeField()
    live_seq = models.BigIntegerField()
    retired = models.BooleanField(default=False)

    class Meta:
        ordering = ["pk"]
        indexes = [
            models.Index(fields=["run", "kind", "key", "iteration"], name="event_by_kind"),
            models.Index(fields=["run", "live_seq"], name="event_by_seq"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.key}".strip()
