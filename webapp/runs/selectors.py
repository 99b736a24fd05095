"""Reads about runs, always for one person where a person asks."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.db.models import Max, Q, QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone

from webapp.accounts.models import User
from webapp.projects.models import Project
from webapp.projects.selectors import visible_projects
from webapp.runs.models import Attempt, EventRow, Run, Transition
from webapp.runs.states import ACTIVE, OVER, RunState

# Kinds of events that a page draws as they come, each under a key.
DRAWN = frozenset({"histogram", "heatmap", "scatter", "table", "text"})

STATE_GROUPS: dict[str, frozenset[RunState]] = {
    "active": ACTIVE | {RunState.QUEUED},
    "over": OVER,
    "attention": frozenset({RunState.FAILED, RunState.LOST}),
}


@dataclass(frozen=True)
class Band:
    """A phase from its first iteration to the one before the next phase; `end` None: it lasts."""

    name: str
    title: str
    begin: int
    end: int | None


def runs_visible_to(user: User | AnonymousUser) -> QuerySet[Run]:
    """All runs of the person's teams, newest first."""
    return Run.objects.filter(project__in=visible_projects(user).values("pk")).select_related(
        "project__team", "created_by"
    )


def run_in(project: Project, run_id: str) -> Run:
    """The run of that project; Http404 for any other."""
    return get_object_or_404(
        Run.objects.select_related("project__team", "created_by", "parent"), project=project, pk=run_id
    )


def project_runs(
    project: Project, *, state: str = "", kind: str = "", search: str = "", tag: str = ""
) -> QuerySet[Run]:
    """A project's runs, newest first. `state` is one state or a group of `STATE_GROUPS`; `search` looks in name,
    task, method.
    """
    rows = Run.objects.filter(project=project).select_related("project__team", "created_by")
    if state:
        rows = rows.filter(state__in=STATE_GROUPS.get(state, {state}))
    if kind:
        rows = rows.filter(kind=kind)
    for word in search.split():
        rows = rows.filter(
            Q(name__icontains=word) | Q(task__icontains=word) | Q(methods__icontains=word) | Q(pk__iexact=word)
        )
    if tag:
        rows = rows.filter(tags__icontains=f'"{tag}"')
    return rows


def attempts_of(run: Run) -> QuerySet[Attempt]:
    """All attempts, newest first."""
    return run.attempts.order_by("-number")


def seconds_spent(runs: Iterable[Run]) -> dict[str, float]:
    """By run, for how long its attempts ran in all, up to now; in one query. Runs of which none was started are missing.

    Time in the queue and between attempts does not count.
    """
    now, spent = timezone.now(), dict[str, float]()
    attempts = Attempt.objects.filter(run__in=[run.pk for run in runs])
    for run_id, begin, end in attempts.values_list("run_id", "started_at", "ended_at"):
        if begin is not None:
            spent[run_id] = spent.get(run_id, 0.0) + ((end or now) - begin).total_seconds()
    return spent


def transitions_of(run: Run) -> QuerySet[Transition]:
    """The run's history, oldest first."""
    return run.transitions.select_related("actor").order_by("pk")


def cuts(run_id: str) -> dict[int, int | None]:
    """Of each attempt, up to which iteration its rows still count (None: all of them)."""
    return dict(Attempt.objects.filter(run_id=run_id).values_list("number", "kept_until"))


def drawn_of(run: Run) -> QuerySet[EventRow]:
    """What the run drew that still counts."""
    return EventRow.objects.filter(run=run, kind__in=DRAWN, retired=False)


def events_of(run: Run, kind: str, *, key: str | None = None, iteration: int | None = None) -> QuerySet[EventRow]:
    """Rows of one kind that still count, oldest first."""
    rows = EventRow.objects.filter(run=run, kind=kind, retired=False)
    if key is not None:
        rows = rows.filter(key=key)
    if iteration is not None:
        rows = rows.filter(iteration=iteration)
    return rows.order_by("pk")


def heartbeats() -> dict[int, int]:
    """Of every attempt that a worker holds, by id, how many signs of life that worker has given."""
    return dict(Attempt.objects.filter(state__in=ACTIVE, superseded=False).values_list("pk", "beats"))


def last_sign(run_id: str, attempt: int) -> datetime | None:
    """When the attempt's worker or its trainer last gave a sign, by their own clocks."""
    beat = Attempt.objects.filter(run_id=run_id, number=attempt).values_list("heartbeat_at", flat=True).first()
    event = EventRow.objects.filter(run_id=run_id, attempt=attempt).aggregate(last=Max("time"))["last"]
    return max((sign for sign in (beat, event) if sign is not None), default=None)


def last_state(run_id: str, attempt: int) -> tuple[str, str]:
    """The attempt's own last word: state and message, empty when it said nothing."""
    row = EventRow.objects.filter(run_id=run_id, attempt=attempt, kind="state").order_by("-pk").first()
    return (str(row.payload.get("state", "")), str(row.payload.get("message", ""))) if row else ("", "")


def event_keys(run: Run) -> dict[str, list[str]]:
    """Keys by kind of the histograms, heat maps, scatters, tables and texts that the run has."""
    found: dict[str, list[str]] = {}
    rows = drawn_of(run).order_by("kind", "key")
    for kind, key in rows.values_list("kind", "key").distinct():
        found.setdefault(kind, []).append(key)
    return found


def log_tail(run: Run, *, lines: int = 200) -> list[dict[str, Any]]:
    """The newest log lines, oldest first: attempt, time (ISO), level, message."""
    rows = EventRow.objects.filter(run=run, kind="log").order_by("-pk")[:lines]
    return [event_json(row) | {"level": row.payload.get("level", "info")} for row in reversed(rows)]


def phase_bands(run: Run) -> list[Band]:
    """The phases in order. Consecutive events of one phase are one band."""
    starts: list[tuple[int, str, str]] = []
    # A repeated iteration is told by the newest attempt.
    for row in events_of(run, "phase").order_by("iteration", "attempt", "pk"):
        entry = (row.iteration or 0, row.key, str(row.payload.get("title") or row.key))
        if starts and starts[-1][0] == entry[0]:
            starts.pop()
        if not starts or starts[-1][1] != entry[1]:
            starts.append(entry)
    ends = [*(begin - 1 for begin, _, _ in starts[1:]), None][: len(starts)]
    return [Band(name, title, begin, end) for (begin, name, title), end in zip(starts, ends, strict=True)]


def marks(run: Run) -> list[dict[str, Any]]:
    """Rewinds, live edits, alerts and stops, oldest first."""
    return [event_json(row) for row in events_of(run, "mark")]


def event_json(row: EventRow) -> dict[str, Any]:
    """A row as the pages and the live stream get it: its payload with attempt, iteration, key and time beside."""
    return {
        **row.payload,
        "kind": row.kind,
        "key": row.key,
        "attempt": row.attempt,
        "iteration": row.iteration,
        "time": row.time.isoformat(),
    }


def run_json(run: Run) -> dict[str, Any]:
    """State and progress as the live stream sends them."""
    return {
        "id": run.pk,
        "state": run.state,
        "state_label": RunState(run.state).label,
        "message": run.message,
        "attempt": run.attempt_number,
        "iteration": run.iteration,
        "total_iterations": run.total_iterations,
        "stage": run.stage,
        "stage_done": run.stage_done,
        "stage_total": run.stage_total,
        "eta_seconds": run.eta_seconds,
        "phase": run.phase,
        "can_stop": run.can_stop,
        "can_resume": run.can_resume,
        "started_at": run.started_at.isoformat() if run.started_at else None,
        "ended_at": run.ended_at.isoformat() if run.ended_at else None,
        "live_seq": run.live_seq,
    }
