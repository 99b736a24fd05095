"""Which checkpoints of a run are kept, and why; removing the others' files. The rows stay for lineage.

A run's own configuration (`checkpoints.keep`, `keep_best`, `best_metric`) is applied whenever it saves, over all of its
attempts. A project's rule is applied when somebody has looked at the preview, or daily where they say so.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from webapp.checkpoints.models import Checkpoint, Retention, RunInput
from webapp.projects.models import Project
from webapp.runs.models import Run
from webapp.runs.states import RunState
from webapp.runs.storage import remove_tree

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rule:
    """Of every run the `keep` newest, and the `keep_best` with the highest `metric`."""

    keep: int
    keep_best: int = 0
    metric: str = "eval/accuracy"


@dataclass(frozen=True)
class Verdict:
    """Why a checkpoint is kept; without reasons, it goes."""

    checkpoint: Checkpoint
    reasons: tuple[str, ...]

    @property
    def goes(self) -> bool:
        return not self.reasons


def rule_of(run: Run) -> Rule | None:
    """What the run's configuration says; None for kinds that save nothing."""
    section = run.config.get("checkpoints")
    if not isinstance(section, dict):
        return None
    return Rule(
        keep=max(1, int(section.get("keep", 2))),
        keep_best=int(section.get("keep_best", 0)),
        metric=str(section.get("best_metric", "eval/accuracy")),
    )


def judge(rows: Iterable[Checkpoint], rule: Rule, *, used: set[int], finished: bool) -> list[Verdict]:
    """What becomes of one run's checkpoints that have files, newest first.

    `used` are the ids of those that runs started from. Damaged ones take no place of a whole one. A run that is not
    finished keeps its newest whole checkpoint under any rule, because it goes on from there.
    """
    standing = sorted(rows, key=lambda row: (row.iteration or 0, row.attempt or 0, row.pk), reverse=True)
    whole = [row for row in standing if not row.retired and not row.damage]
    newest = {row.pk for row in whole[: rule.keep]}
    measured = [row for row in whole if isinstance(row.metrics.get(rule.metric), int | float)]
    # The sort is stable: of two that are equally good, the newer one stands first.
    best = {row.pk for row in sorted(measured, key=lambda row: -row.metrics[rule.metric])[: rule.keep_best]}
    verdicts = []
    for row in standing:
        reasons = []
        if row.pinned:
            reasons.append("pinned")
        if row.pk in used:
            reasons.append("a run started from it")
        if row.final and not row.retired:
            reasons.append("the final one")
        if not finished and whole and row.pk == whole[0].pk:
            reasons.append("the run goes on from it")
        if row.pk in newest:
            reasons.append(f"one of the {rule.keep} newest" if rule.keep > 1 else "the newest")
        if row.pk in best:
            reasons.append(
                f"among the best {rule.keep_best} by {rule.metric}"
                if rule.keep_best > 1
                else f"the best by {rule.metric}"
            )
        if row.damage and not whole:
            reasons.append("damaged, but there is no whole one")
        verdicts.append(Verdict(row, tuple(reasons)))
    return verdicts


def _with_files(run: Run) -> Sequence[Checkpoint]:
    return list(Checkpoint.objects.filter(run=run, removed_at=None, stored_at__isnull=False))


def used_as_base(rows: Iterable[Checkpoint]) -> set[int]:
    """Ids of those that a run started from."""
    return set(RunInput.objects.filter(role="base", checkpoint__in=rows).values_list("checkpoint_id", flat=True))


def plan_for_run(run: Run, rule: Rule) -> list[Verdict]:
    """What the rule would do to a run's checkpoints."""
    rows = _with_files(run)
    return judge(rows, rule, used=used_as_base(rows), finished=run.state == RunState.FINISHED)


def plan_for_project(project: Project, rule: Rule) -> list[Verdict]:
    """What the rule would do to every run of the project, newest run first. Runs that are at work are left alone: their
    own configuration looks after them.
    """
    runs = Run.objects.filter(project=project, checkpoints__removed_at=None).distinct().order_by("-created_at")
    return [verdict for run in runs if run.is_over for verdict in plan_for_run(run, rule)]


def apply_to_run(run_id: str, rule: Rule | None = None, *, only: Collection[int] | None = None) -> list[Checkpoint]:
    """Removes what the rule (by default the run's own) does not keep; those that were removed. `only`: ids that a person
    has seen in the preview; nothing else goes.

    The rows say so first, then the files go: a row never claims files that are not there. A storage that does not
    answer leaves orphans, which `manage.py files --check` finds.
    """
    with transaction.atomic():
        run = Run.objects.select_for_update(of=("self",)).get(pk=run_id)
        rule = rule or rule_of(run)
        if rule is None:
            return []
        # Locked, so that no run starts from one of them meanwhile.
        list(Checkpoint.objects.select_for_update().filter(run=run, removed_at=None))
        gone = [verdict.checkpoint for verdict in plan_for_run(run, rule) if verdict.goes]
        gone = [row for row in gone if only is None or row.pk in only]
        if not gone:
            return []
        run.live_seq += 1
        run.save(update_fields=["live_seq"])
        now = timezone.now()
        for row in gone:
            row.removed_at, row.live_seq = now, run.live_seq
        Checkpoint.objects.bulk_update(gone, ["removed_at", "live_seq"])
    for row in gone:
        _remove_files(row)
    return gone


def apply_to_project(project: Project, rule: Rule, *, only: Collection[int] | None = None) -> list[Checkpoint]:
    """Removes what `plan_for_project` would, of these ids where they are given; those that were removed."""
    runs = {verdict.checkpoint.run_id for verdict in plan_for_project(project, rule) if verdict.goes}
    return [row for run_id in sorted(filter(None, runs)) for row in apply_to_run(run_id, rule, only=only)]


def set_rule(*, project: Project, keep: int, keep_best: int, best_metric: str, automatic: bool) -> Retention:
    """The project's rule. Raises ValidationError."""
    row = Retention.objects.filter(project=project).first() or Retention(project=project)
    row.keep, row.keep_best, row.best_metric, row.automatic = max(1, keep), keep_best, best_metric, automatic
    row.full_clean()
    row.save()
    return row


def project_rule(project: Project) -> Retention:
    """The project's rule, or the one that is proposed (not saved)."""
    return Retention.objects.filter(project=project).first() or Retention(project=project)


def apply_automatic() -> int:
    """The scheduler's daily job: every project that says so; how many checkpoints were removed."""
    removed = 0
    for row in Retention.objects.filter(automatic=True).select_related("project"):
        removed += len(apply_to_project(row.project, Rule(row.keep, row.keep_best, row.best_metric)))
    return removed


def delete(checkpoint: Checkpoint) -> Checkpoint:
    """Removes one checkpoint's files because a person wants it. Raises ValidationError saying what it is needed for."""
    with transaction.atomic():
        row = Checkpoint.objects.select_for_update(of=("self",)).select_related("run").get(pk=checkpoint.pk)
        needed = why_needed(row)
        if needed:
            raise ValidationError(f"{row.name} is not deleted: {'; '.join(needed)}", code="in_use")
        row.removed_at = timezone.now()
        row.save(update_fields=["removed_at"])
    _remove_files(row)
    return row


def why_needed(row: Checkpoint) -> list[str]:
    """What forbids deleting a checkpoint."""
    needed = []
    if row.pinned:
        needed.append("it is pinned; unpin it first")
    if bases := RunInput.objects.filter(checkpoint=row, role="base").select_related("run"):
        needed.append("runs started from it: " + ", ".join(found.run.name for found in bases[:3]))
    run = row.run
    if run is not None and run.state != RunState.FINISHED:
        rows = [one for one in _with_files(run) if not one.retired and not one.damage]
        if rows and max(rows, key=lambda one: (one.iteration or 0, one.attempt or 0)).pk == row.pk:
            needed.append(f"{run.name} is not finished and goes on from it")
    return needed


def _remove_files(row: Checkpoint) -> None:
    try:
        remove_tree(row.uri)
    except OSError as error:
        log.warning("The files of the checkpoint %s could not be removed: %s", row.uri, error)
