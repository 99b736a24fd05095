"""Rows of the run list: a fixed number of queries, however many runs a project has."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db.models import F, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from webapp.checkpoints.models import RunInput
from webapp.evals.curves import pass_at
from webapp.evals.models import Evaluation
from webapp.launch.names import method_of, preset_title
from webapp.methods.selectors import method_titles
from webapp.metrics.models import Series
from webapp.projects.models import Project
from webapp.runs.models import Attempt, Run, RunKind
from webapp.runs.selectors import STATE_GROUPS, project_runs, seconds_spent
from webapp.runs.states import ACTIVE, RunState

if TYPE_CHECKING:
    from trainer.contract.intervals import Estimate

ACCURACY = "eval/accuracy"
SORTS = {
    "created": "created_at",
    "name": "name",
    "state": "state",
    "task": "task",
    "accuracy": "accuracy",
    "started": "started_at",
    "duration": "spent",
}
GROUP_LABELS = {"active": "Queued or running", "over": "Over", "attention": "Failed or lost"}


@dataclass(frozen=True)
class Filters:
    """What the address asks for, with unknown values left out. `sort` may start with a minus."""

    search: str = ""
    state: str = ""
    kind: str = ""
    method: str = ""
    tag: str = ""
    sort: str = "-created"

    @classmethod
    def of(cls, query: Any) -> "Filters":
        """From a request's GET."""
        state, kind, sort = query.get("state", ""), query.get("kind", ""), query.get("sort", "")
        return cls(
            search=query.get("q", "").strip(),
            state=state if state in STATE_GROUPS or state in RunState.values else "",
            kind=kind if kind in RunKind.values else "",
            method=query.get("method", ""),
            sort=sort if sort.removeprefix("-") in SORTS else "-created",
        )

    @property
    def any(self) -> bool:
        return bool(self.search or self.state or self.kind or self.method)


@dataclass(frozen=True)
class RunRow:
    """A run as the list shows it. `accuracy` is pass@1 on validation problems at iteration `evaluated_at`, `duration`
    the seconds that its attempts ran, None before the first start.
    """

    run: Run
    method: str
    base: str
    accuracy: "Estimate | None"
    evaluated_at: int | None
    duration: float | None


def runs_for(project: Project, filters: Filters) -> QuerySet[Run]:
    """The filtered runs in the asked order; those without a value of the sorted column come last."""
    rows = project_runs(project, state=filters.state, kind=filters.kind, search=filters.search, tag=filters.tag)
    if filters.method:
        plain = Q(methods=[]) & Q(kind=RunKind.RL, config__algorithm__preset=filters.method)
        rows = rows.filter(plain | Q(methods__icontains=f'"{filters.method}"'))
    name = filters.sort.removeprefix("-")
    if name == "accuracy":
        newest = Series.objects.filter(run=OuterRef("pk"), key=ACCURACY).values("last_value")[:1]
        rows = rows.annotate(accuracy=Subquery(newest))
    if name == "duration":
        each = Coalesce(F("ended_at"), timezone.now()) - F("started_at")
        started = Attempt.objects.filter(run=OuterRef("pk"), started_at__isnull=False).order_by().values("run")
        rows = rows.annotate(spent=Subquery(started.annotate(total=Sum(each)).values("total")))
    column = F(SORTS[name])
    order = column.desc(nulls_last=True) if filters.sort.startswith("-") else column.asc(nulls_last=True)
    return rows.order_by(order, "-created_at", "pk")


def rows_of(runs: Sequence[Run]) -> list[RunRow]:
    """The rows of a page of runs."""
    bases: dict[str, str] = dict(
        RunInput.objects.filter(run__in=runs, role="base").values_list("run_id", "checkpoint__name")
    )
    newest = _newest_validation(runs)
    spent = seconds_spent(runs)
    return [
        RunRow(
            run=run,
            method=method_of(run),
            base=bases.get(run.pk) or run.base_checkpoint or "",
            accuracy=pass_at(newest[run.pk], 1) if run.pk in newest else None,
            evaluated_at=newest[run.pk].iteration if run.pk in newest else None,
            duration=spent.get(run.pk),
        )
        for run in runs
    ]


def _newest_validation(runs: Sequence[Run]) -> dict[str, Evaluation]:
    """The newest validation of each run, without its answers; of a run that only evaluates, its test."""
    last = Evaluation.objects.filter(run=OuterRef("pk"), name__in=("validation", "test"), retired=False)
    order = last.order_by(F("name").desc(), "-iteration", "-attempt", "-pk").values("pk")[:1]
    wanted = Run.objects.filter(pk__in=[run.pk for run in runs]).annotate(newest=Subquery(order))
    ids = [pk for pk in wanted.values_list("newest", flat=True) if pk is not None]
    found = Evaluation.objects.filter(pk__in=ids).defer("answers")
    return {evaluation.run_id: evaluation for evaluation in found}  # type: ignore[attr-defined]


def methods_in(project: Project) -> list[tuple[str, str]]:
    """(value, title) of every method and base algorithm that the project's runs use."""
    used: set[str] = set()
    for kind, methods, preset in (
        Run.objects.filter(project=project).values_list("kind", "methods", "config__algorithm__preset").distinct()
    ):
        used.update(methods)
        if kind == RunKind.RL and not methods:
            used.add(str(preset or "grpo"))
    titles = [(slug, method_titles([slug])[0]) for slug in sorted(used)]
    return [(slug, preset_title(slug) if title == slug else title) for slug, title in titles]


def running(project: Project) -> QuerySet[Run]:
    """Queued and active runs, the longest running first."""
    rows = Run.objects.filter(project=project, state__in=ACTIVE | {RunState.QUEUED})
    return rows.select_related("project__team", "created_by").order_by(
        F("started_at").asc(nulls_last=True), "created_at"
    )


def needing_attention(project: Project, *, since: datetime) -> QuerySet[Run]:
    """Failed and lost runs that ended after `since`, newest first."""
    rows = Run.objects.filter(project=project, state__in=STATE_GROUPS["attention"], ended_at__gte=since)
    return rows.select_related("project__team", "created_by").order_by("-ended_at")


def ended_well(project: Project, *, since: datetime) -> QuerySet[Run]:
    """Finished and stopped runs that ended after `since`, newest first."""
    rows = Run.objects.filter(project=project, state__in=(RunState.FINISHED, RunState.STOPPED), ended_at__gte=since)
    return rows.select_related("project__team", "created_by").order_by("-ended_at")
