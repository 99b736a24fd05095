"""A launched study and the runs that belong to it."""

from functools import cached_property

from django.conf import settings
from django.db import models
from django.urls import reverse

from trainer.contract import study as contract
from webapp.projects.models import Project
from webapp.runs.models import Run


class Study(models.Model):
    """One form of a study in a project. `document` is the whole `trainer.contract.study.Study`, as it was at the launch,
    so that a later release's wording changes nothing. `open`: there is still something to launch.
    """

    class Form(models.TextChoices):
        QUICK = "quick", "Quick"
        FULL = "full", "Full"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="studies")
    slug = models.CharField(max_length=60)
    title = models.CharField(max_length=160)
    form = models.CharField(max_length=5, choices=Form.choices)
    document = models.JSONField()
    queue = models.CharField(max_length=40, default="default")
    base_uri = models.CharField(max_length=400, blank=True, help_text="Empty until the base has been trained.")
    open = models.BooleanField(default=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at", "-pk"]
        verbose_name_plural = "studies"

    def __str__(self) -> str:
        return f"{self.title} ({self.form})"

    @cached_property
    def contract(self) -> contract.Study:
        return contract.Study.model_validate(self.document)

    @property
    def url_args(self) -> tuple[str, str, int]:
        """Arguments of every route below a study."""
        return *self.project.url_args, self.pk

    def get_absolute_url(self) -> str:
        return reverse("studies:detail", args=self.url_args)


class Member(models.Model):
    """A run's place in a study: it makes the base, trains an arm, or measures one (of the base: arm "", seed null). A run
    may belong to several studies, which share what is equal."""

    class Part(models.TextChoices):
        BASE = "base", "Makes the base"
        TRAIN = "train", "Trains"
        MEASURE = "measure", "Measures"

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="members")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="memberships")
    part = models.CharField(max_length=8, choices=Part.choices)
    arm = models.CharField(max_length=48, blank=True)
    seed = models.BigIntegerField(default=-1, help_text="-1: of no seed.")

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["study", "part", "arm", "seed"], name="one_run_per_place_of_a_study")
        ]

    def __str__(self) -> str:
        return f"{self.part} {self.arm} {self.seed}"
