"""Reads about workers and queues."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from webapp.accounts.models import User
from webapp.launch.models import Worker
from webapp.runs.models import Attempt, Run
from webapp.runs.selectors import runs_visible_to
from webapp.runs.states import ACTIVE, RunState

SILENCE = timedelta(seconds=60)
"""A worker that has not been seen for longer counts as gone, for what people are shown. No run is taken away by it."""


def live_workers() -> QuerySet[Worker]:
    """Workers that are there now, by name."""
    return Worker.objects.filter(stopped_at=None, seen_at__gt=timezone.now() - SILENCE)


def served_queues() -> set[str]:
    """The queues from which some live worker takes runs."""
    return {queue for worker in live_workers().filter(draining=False) for queue in worker.queues}


def queue_names() -> list[str]:
    """Every queue that a run may name: those of the settings, in their order, then those of live workers."""
    live = {queue for worker in live_workers() for queue in worker.queues}
    return [*settings.QUEUES, *sorted(live - set(settings.QUEUES))]


@dataclass(frozen=True)
class Waiting:
    """A queued run: its place in the order in which runs were queued, and why it does not run. `run` is None for one of
    a team that the person does not belong to.
    """

    place: int
    run: Run | None
    attempt: Attempt
    why: str


@dataclass(frozen=True)
class Station:
    """A worker, with the attempts that it holds; `others` are those of teams that the person does not belong to."""

    worker: Worker
    live: bool
    held: list[Attempt]
    others: int

    @property
    def state(self) -> str:
        if self.worker.stopped_at is not None:
            return "stopped"
        if not self.live:
            return "silent"
        return "draining" if self.worker.draining else "live"


def waiting_for(user: User) -> list[Waiting]:
    """The queued runs of all teams, oldest first."""
    visible = set(runs_visible_to(user).filter(state=RunState.QUEUED).values_list("pk", flat=True))
    rows = Attempt.objects.filter(state=RunState.QUEUED, superseded=False).select_related("run__project__team")
    stations = stations_for(user)
    return [
        Waiting(place, attempt.run if attempt.run_id in visible else None, attempt, _why(attempt, stations))
        for place, attempt in enumerate(rows.order_by("created_at", "pk"), start=1)
    ]


def _why(attempt: Attempt, stations: Iterable[Station]) -> str:
    queue = attempt.run.queue
    serving = [one for one in stations if one.live and queue in one.worker.queues]
    open_ones = [one for one in serving if not one.worker.draining]
    if not serving:
        return f"No live worker serves the queue {queue}."
    if not open_ones:
        return f"Every worker of the queue {queue} is being drained."
    if attempt.not_before is not None and attempt.not_before > timezone.now():
        return "Pauses before an automatic resume."
    if all(len(one.held) + one.others >= one.worker.slots for one in open_ones):
        return f"Every slot of the queue {queue} is taken."
    return "A worker will take it in a moment."


def stations_for(user: User) -> list[Station]:
    """Every worker that was seen within a day or holds a run, by name."""
    visible = set(runs_visible_to(user).filter(state__in=ACTIVE).values_list("pk", flat=True))
    live = set(live_workers().values_list("pk", flat=True))
    held: dict[str, list[Attempt]] = {}
    active = Attempt.objects.filter(state__in=ACTIVE, superseded=False).select_related("run__project__team")
    for attempt in active.order_by("worker"):
        held.setdefault(attempt.worker.rpartition("/")[0], []).append(attempt)
    recent = timezone.now() - timedelta(days=1)
    return [
        Station(
            worker,
            worker.pk in live,
            [attempt for attempt in held.get(worker.name, ()) if attempt.run_id in visible],
            sum(attempt.run_id not in visible for attempt in held.get(worker.name, ())),
        )
        for worker in Worker.objects.all()
        if worker.seen_at > recent or worker.name in held
    ]
