"""Reads of checkpoints."""

from django.db.models import Max, Q, QuerySet
from django.shortcuts import get_object_or_404

from webapp.checkpoints.models import Checkpoint, RunInput, Upload
from webapp.projects.models import Project
from webapp.runs.models import Run


def checkpoints_in(project: Project) -> QuerySet[Checkpoint]:
    """Everything that still has its files, newest first."""
    rows = Checkpoint.objects.filter(project=project, removed_at=None, retired=False, stored_at__isnull=False)
    return rows.select_related("run").order_by("-created_at", "-pk")


def checkpoint_in(project: Project, checkpoint_id: int) -> Checkpoint:
    """One of the project's checkpoints; Http404 for any other."""
    return get_object_or_404(Checkpoint.objects.select_related("run"), project=project, pk=checkpoint_id)


def checkpoints_of(run: Run) -> QuerySet[Checkpoint]:
    """A run's checkpoints that still count, newest iteration first, removed ones included."""
    return Checkpoint.objects.filter(run=run, retired=False).order_by("-iteration", "-attempt")


def newest_iteration(run_id: str) -> int:
    """Of the run's newest checkpoint that still counts and has its files; -1 when there is none."""
    rows = Checkpoint.objects.filter(run=run_id, retired=False, removed_at=None)
    newest: int | None = rows.aggregate(newest=Max("iteration"))["newest"]
    return -1 if newest is None else newest


def bases_for(project: Project) -> QuerySet[Checkpoint]:
    """What a launch form offers: imported checkpoints, final ones of runs, pinned ones. Its value is `policy_uri`."""
    return checkpoints_in(project).filter(Q(run=None) | Q(final=True) | Q(pinned=True), damage="")


def base_of(run: Run) -> Checkpoint | None:
    """The checkpoint the run started from, where the project knows it."""
    found = RunInput.objects.filter(run=run, role="base").select_related("checkpoint__run").first()
    return found.checkpoint if found else None


def runs_from(checkpoint: Checkpoint) -> QuerySet[Run]:
    """The runs that started from it."""
    return Run.objects.filter(inputs__checkpoint=checkpoint, inputs__role="base").order_by("-created_at")


def resume_points(run: Run) -> list[Checkpoint]:
    """Where the run can go on: what is whole and still part of it, newest iteration first."""
    return [row for row in checkpoints_of(run) if row.available and not row.damage]


def chosen_for(run: Run, attempt: int) -> Checkpoint | None:
    """What a person chose for an attempt to go on from."""
    found = RunInput.objects.filter(run=run, role=f"resume {attempt}").select_related("checkpoint").first()
    return found.checkpoint if found else None


def all_in(project: Project) -> QuerySet[Checkpoint]:
    """A project's checkpoints that still count, newest first, those without files included."""
    rows = Checkpoint.objects.filter(project=project, retired=False)
    return rows.select_related("run", "project__team").order_by("-created_at", "-pk")


def upload_in(project: Project, upload_id: str) -> Upload:
    """One of the project's uploads; Http404 for any other."""
    return get_object_or_404(Upload.objects.select_related("project__team"), project=project, pk=upload_id)
