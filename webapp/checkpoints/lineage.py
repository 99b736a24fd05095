"""Where weights come from and where they went, as a drawing: dataset versions and bases → run → checkpoints → runs."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from django.core.exceptions import ObjectDoesNotExist

from webapp.checkpoints.models import Checkpoint, RunInput
from webapp.checkpoints.selectors import base_of, checkpoints_of
from webapp.runs.models import Run, RunKind

GENERATIONS = 3  # runs in a row that are drawn, the newest ones
SHOWN = 6  # checkpoints of a run, and runs of a checkpoint; the others are folded


@dataclass(frozen=True)
class Node:
    """One box. `note` says what it is to the box before it; `here` marks the page's own."""

    kind: Literal["dataset", "run", "checkpoint"]
    name: str
    url: str
    note: str = ""
    here: bool = False
    after: tuple["Node", ...] = ()

    @property
    def first(self) -> tuple["Node", ...]:
        return self.after[:SHOWN]

    @property
    def folded(self) -> tuple["Node", ...]:
        return self.after[SHOWN:]


@dataclass(frozen=True)
class Lineage:
    """`steps` from the oldest on, each with what goes into the next together; the last one's `after` are what came of it.
    `earlier` is the base at which the drawing begins when it has a history of its own."""

    steps: Sequence[Sequence[Node]] = field(default_factory=list)
    earlier: Node | None = None


def lineage_of_run(run: Run) -> Lineage:
    """The run, what it started from, its checkpoints, and the runs that start from or evaluate those."""
    ends = _ends(list(checkpoints_of(run).select_related("project__team")), of=run)
    return _drawn(run, Node("run", run.name, run.get_absolute_url(), here=True, after=ends))


def lineage_of_checkpoint(checkpoint: Checkpoint) -> Lineage:
    """The checkpoint, the run that saved it, what that one started from, and the runs that start from or evaluate it."""
    (end,) = _ends([checkpoint], of=checkpoint.run, here=True)
    if checkpoint.run is None:
        return Lineage([[end]])
    run = checkpoint.run
    return _drawn(run, Node("run", run.name, run.get_absolute_url(), note=_kind(run), after=(end,)))


def _drawn(run: Run, last: Node) -> Lineage:
    """The steps up to a run, which is drawn as `last`."""
    steps: list[list[Node]] = [[last]]
    for _ in range(GENERATIONS):
        base = base_of(run)
        inputs = _datasets(run) + ([_saved(base)] if base is not None else [])
        if inputs:
            steps.append(inputs)
        if base is None or base.run is None:
            return Lineage(steps[::-1])
        run = base.run
        if len(steps) < 2 * GENERATIONS:
            steps.append([Node("run", run.name, run.get_absolute_url(), note=_kind(run))])
    return Lineage(steps[::-1], earlier=steps[-1][-1])


def _datasets(run: Run) -> list[Node]:
    """The dataset version of the run's problems, where they come from one. Apps of one layer meet by relations only."""
    try:
        version = run.dataset_use.version
    except ObjectDoesNotExist:
        return []
    return [Node("dataset", str(version), version.get_absolute_url(), note=version.content_hash[:8])]


def _saved(checkpoint: Checkpoint, *, here: bool = False, after: tuple[Node, ...] = ()) -> Node:
    notes = [] if checkpoint.run_id else ["imported"]
    if checkpoint.run_id and checkpoint.final:
        notes.append("final")
    if checkpoint.removed_at is not None:
        notes.append("removed")
    elif checkpoint.damage:
        notes.append("damaged")
    return Node("checkpoint", checkpoint.name, checkpoint.get_absolute_url(), ", ".join(notes), here, after)


def _kind(run: Run) -> str:
    return "" if run.kind == RunKind.RL else run.get_kind_display().lower()


def _ends(checkpoints: list[Checkpoint], *, of: Run | None, here: bool = False) -> tuple[Node, ...]:
    """Checkpoints with the runs that use them: used ones first, then final and pinned, then the newest."""
    users = _users(checkpoints, of)
    order = sorted(
        range(len(checkpoints)),
        key=lambda at: (not users[checkpoints[at].pk], not checkpoints[at].final, not checkpoints[at].pinned, at),
    )
    return tuple(_saved(checkpoints[at], here=here, after=users[checkpoints[at].pk]) for at in order)


def _users(checkpoints: Iterable[Checkpoint], of: Run | None) -> dict[int, tuple[Node, ...]]:
    """By checkpoint, the runs that start from it or evaluate its weights, newest first, without the run that saved it."""
    rows = {row.pk: row for row in checkpoints}
    said: dict[int, dict[str, str]] = defaultdict(dict)
    inputs = RunInput.objects.filter(checkpoint__in=rows, role="base").values_list("checkpoint", "run")
    for pk, run in inputs:
        said[pk][run] = "starts from it"
    by_hash = defaultdict(list)
    for row in rows.values():
        by_hash[row.project_id, row.weights_hash].append(row.pk)
    evaluated = Run.objects.filter(
        project__in={project for project, _ in by_hash},
        evaluations__retired=False,
        evaluations__weights_hash__in={weights for _, weights in by_hash},
    )
    if of is not None:
        evaluated = evaluated.exclude(pk=of.pk)
    for run, project, weights in evaluated.values_list("pk", "project", "evaluations__weights_hash").distinct():
        for pk in by_hash.get((project, weights), ()):
            said[pk].setdefault(run, "evaluates it")
    wanted = {run for users in said.values() for run in users}
    runs = {run.pk: run for run in Run.objects.filter(pk__in=wanted).select_related("project__team")}
    return {
        pk: tuple(
            Node(
                "run",
                run.name,
                run.get_absolute_url(),
                note="evaluates it" if run.kind == RunKind.EVALUATE else said[pk][run.pk],
            )
            for run in sorted((runs[one] for one in said[pk]), key=lambda run: (run.created_at, run.pk), reverse=True)
        )
        for pk in rows
    }
