"""Reads of checkpoints."""

from django.db.models import Q, QuerySet
from django.shortcuts import get_object_or_404

from webapp.checkpoints.models import Checkpoint, RunInput
from webapp.projects.models import Project
from webapp.runs.models import Run


def checkpoints_in(project: Project) -> QuerySet[Checkpoint]:
    """Everything that still has its files, newest first."""
    rows = Checkpoint.objects.filter(project=project, removed_at=None, retired=False)
    return rows.select_related("run").order_by("-created_at", "-pk")


def checkpoint_in(project: Project, checkpoint_id: int) -> Checkpoint:
    """One of the project's checkpoints; Http404 for any other."""
    return get_object_or_404(Checkpoint.objects.select_related("run"), project=project, pk=checkpoint_id)


def checkpoints_of(run: Run) -> QuerySet[Checkpoint]:
    """A run's checkpoints that still count, newest iteration first, removed ones included."""
    return Checkpoint.objects.filter(run=run, retired=False).order_by("-iteration", "-attempt")


def bases_for(project: Project) -> QuerySet[Checkpoint]:
    """What a launch form offers: imported checkpoints and the final ones of runs. Its value is `policy_uri`."""
    return checkpoints_in(project).filter(Q(run=None) | Q(final=True))


def base_of(run: Run) -> Checkpoint | None:
    """The checkpoint the run started from, where the project knows it."""
    found = RunInput.objects.filter(run=run, role="base").select_related("checkpoint__run").first()
    return found.checkpoint if found else None


def runs_from(checkpoint: Checkpoint) -> QuerySet[Run]:
    """The runs that started from it."""
    return Run.objects.filter(inputs__checkpoint=checkpoint).order_by("-created_at")
