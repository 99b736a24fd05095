"""Writes about runs: making them, moving them through their states, claims and leases, retiring what is repeated.

Functions that take `run` from the outside lock it first; those documented with "locked" expect the caller's lock
(`lock`). On SQLite every transaction is IMMEDIATE, which is the same lock.
"""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from webapp.accounts.models import User
from webapp.projects.models import Project
from webapp.runs.models import Attempt, EventRow, Run, Transition, new_run_id
from webapp.runs.states import ACTIVE, OVER, TRANSITIONS, BadTransition, RunState

BEATS_PER_LEASE = 6
"""How often a worker shows that it lives within one lease, and how often a scheduler looks."""
# JSON that may be empty, which a form field may not.
NOT_FROM_PEOPLE = ("config", "methods", "tags", "versions")


class ClaimLost(Exception):
    """Another claim, a newer attempt or the reaper has taken the run; this supervisor must stop and write nothing
    more.
    """


@dataclass(frozen=True)
class Claim:
    """The right to supervise one attempt."""

    attempt_id: int
    run_id: str
    number: int
    token: str


@dataclass(frozen=True)
class Place:
    """Where an attempt runs: the slot's name as people read it, its host, and its device ("" for none)."""

    name: str
    host: str = ""
    device: str = ""


@dataclass(frozen=True)
class NewEvent:
    """One row for `EventRow`; the fields are those of the model."""

    kind: str
    payload: Mapping[str, Any]
    time: datetime
    key: str = ""
    iteration: int | None = None


def lock(run_id: str) -> Run:
    """The run's row, locked until the transaction ends."""
    return Run.objects.select_for_update(of=("self",)).get(pk=run_id)


@transaction.atomic
def create_run(
    *,
    project: Project,
    name: str,
    kind: str,
    config: Mapping[str, Any],
    seed: int = 0,
    methods: Iterable[str] = (),
    task: str = "",
    user: User | None = None,
    parent: Run | None = None,
    tags: Iterable[str] = (),
    notes: str = "",
    run_id: str | None = None,
    queue: str = "default",
    auto_resume: int | None = None,
) -> Run:
    """A queued run with its first attempt. `config` is the resolved document; nothing here starts it.

    `run_id` is an id that was made beforehand: a second run of the same id raises ValidationError. `auto_resume` None
    is the installation's setting.
    """
    run = Run(
        pk=run_id or new_run_id(),
        project=project,
        name=name,
        kind=kind,
        config=dict(config),
        seed=seed,
        methods=list(methods),
        task=task,
        created_by=user,
        parent=parent,
        tags=sorted(set(tags)),
        notes=notes,
        queue=queue,
        auto_resume=auto_resume,
        live_seq=1,
    )
    run.full_clean(exclude=NOT_FROM_PEOPLE)
    run.save(force_insert=True)
    Attempt.objects.create(run=run, number=1)
    _note(run, source="", target=RunState.QUEUED, actor=user, reason="Launched.")
    return run


def move(
    *,
    run: Run,
    attempt: Attempt,
    to: RunState,
    reason: str = "",
    actor: User | None = None,
    actor_name: str = "",
    ended_at: datetime | None = None,
) -> None:
    """One step of the state machine, for the locked run and its current attempt together. Raises BadTransition.

    `ended_at` is when the attempt really ended, where that is known to be earlier than now.
    """
    if to not in TRANSITIONS[RunState(run.state)]:
        raise BadTransition(run.state, to)
    now = timezone.now()
    source, run.state, attempt.state = run.state, to, to
    run.message = reason
    run.live_seq += 1
    if to == RunState.RUNNING and run.started_at is None:
        run.started_at = now
    if to in OVER:
        run.ended_at = attempt.ended_at = min(now, ended_at or now)
        run.eta_seconds = None
        attempt.claim, attempt.message = "", reason
    if to == RunState.QUEUED:
        run.ended_at = run.stop_requested_at = run.stop_requested_by = None
    run.save()
    attempt.save()
    _note(run, source=source, target=to, actor=actor, actor_name=actor_name, reason=reason)


def _note(
    run: Run, *, source: str, target: RunState, actor: User | None = None, actor_name: str = "", reason: str = ""
) -> None:
    Transition.objects.create(
        run=run,
        attempt=run.attempt_number,
        source=source,
        target=target,
        actor=actor,
        actor_name=actor_name or (actor.name if actor else "system"),
        reason=reason,
    )


def current_attempt(run: Run) -> Attempt:
    """The only attempt that may still write; locked with the run."""
    return run.attempts.get(number=run.attempt_number)


# Claims and heartbeats


@transaction.atomic
def claim(attempt_id: int, *, place: Place) -> Claim | None:
    """Takes a queued attempt for a worker by compare-and-swap; None when someone else has it or it is over.

    A message that arrives twice, or after the run was cancelled, ends here.
    """
    token, now = secrets.token_hex(16), timezone.now()
    taken = Attempt.objects.filter(pk=attempt_id, state=RunState.QUEUED, superseded=False, claim="").update(
        claim=token,
        worker=place.name,
        host=place.host,
        device=place.device,
        beats=F("beats") + 1,
        heartbeat_at=now,
        started_at=now,
    )
    if not taken:
        return None
    run_id = Attempt.objects.values_list("run_id", flat=True).get(pk=attempt_id)
    run = lock(run_id)
    attempt = Attempt.objects.get(pk=attempt_id)
    move(run=run, attempt=attempt, to=RunState.STARTING, reason=f"Taken by {place.name}.", actor_name=place.name)
    return Claim(attempt_id, run.pk, attempt.number, token)


def renew(held: Claim, *, pid: int | None = None) -> bool:
    """Heartbeat: True while the claim holds. One statement, no lock on the run."""
    fields: dict[str, Any] = {"beats": F("beats") + 1, "heartbeat_at": timezone.now()}
    if pid is not None:
        fields["pid"] = pid
    return bool(_held(held).update(**fields))


def _held(held: Claim) -> Any:
    return Attempt.objects.filter(pk=held.attempt_id, claim=held.token, superseded=False, state__in=ACTIVE)


def hold(held: Claim) -> tuple[Run, Attempt]:
    """The run, locked, and its attempt, for a write of the claim's holder. Raises ClaimLost: the fence."""
    run = lock(held.run_id)
    attempt = _held(held).select_for_update().first()
    if attempt is None or run.attempt_number != attempt.number:
        raise ClaimLost(f"attempt {held.number} of run {held.run_id} is no longer this worker's")
    return run, attempt


@transaction.atomic
def finish(
    held: Claim,
    *,
    to: RunState,
    exit_code: int | None,
    reason: str,
    worker: str = "",
    ended_at: datetime | None = None,
) -> Run:
    """Ends the claim's attempt and with it the run; `worker` is who says so, by default who claimed it. Raises
    ClaimLost.
    """
    run, attempt = hold(held)
    attempt.exit_code = exit_code
    name = worker or attempt.worker
    move(run=run, attempt=attempt, to=to, reason=reason, actor_name=name, ended_at=ended_at)
    return run


@transaction.atomic
def seize(attempt_id: int, *, beats: int) -> Claim | None:
    """Takes an attempt away from its silent worker, whose later writes are refused; None if its `beats` have moved on."""
    token = secrets.token_hex(16)
    taken = Attempt.objects.filter(pk=attempt_id, state__in=ACTIVE, superseded=False, beats=beats).update(
        claim=token, beats=F("beats") + 1
    )
    if not taken:
        return None
    attempt = Attempt.objects.get(pk=attempt_id)
    return Claim(attempt_id, attempt.run_id, attempt.number, token)


# Stop and resume


@transaction.atomic
def request_stop(*, run: Run, user: User | None = None, actor_name: str = "") -> Run:
    """Cancels a queued run at once; asks an active one to save and leave. Raises BadTransition for a run that is
    over.
    """
    run = lock(run.pk)
    attempt = current_attempt(run)
    if run.state == RunState.QUEUED:
        move(
            run=run,
            attempt=attempt,
            to=RunState.CANCELLED,
            actor=user,
            actor_name=actor_name,
            reason="Cancelled while it waited in the queue." if run.started_at else "Cancelled before it started.",
        )
    elif run.state in (RunState.STARTING, RunState.RUNNING):
        run.stop_requested_at, run.stop_requested_by = timezone.now(), user
        move(
            run=run,
            attempt=attempt,
            to=RunState.STOPPING,
            actor=user,
            actor_name=actor_name,
            reason="Asked to stop; it saves its state first.",
        )
    elif run.state != RunState.STOPPING:
        raise BadTransition(run.state, RunState.STOPPING)
    return run


def stop_requested(run_id: str) -> bool:
    """The flag that the supervisor watches."""
    return Run.objects.filter(pk=run_id, stop_requested_at__isnull=False).exists()


@transaction.atomic
def add_attempt(*, run: Run, user: User | None = None, reason: str = "Resumed.") -> Attempt:
    """A new queued attempt of a run that is over but not finished; earlier ones may write no more. Raises
    BadTransition. A person's wish: automatic resumes are counted anew.
    """
    run = lock(run.pk)
    run.auto_resumes, run.resumed_from = 0, None
    return _queue_again(run, reason=reason, actor=user)


def resume_automatically(
    *, run: Run, reason: str, actor_name: str, count: int, resumed_from: int | None, not_before: datetime | None
) -> Attempt:
    """A new queued attempt of the locked run, which was interrupted; see `webapp.launch.endings`. Raises BadTransition.

    `count` is how many automatic resumes there have now been since the checkpoint `resumed_from` without a newer one.
    """
    run.auto_resumes, run.resumed_from = count, resumed_from
    return _queue_again(run, reason=reason, actor_name=actor_name, not_before=not_before)


def _queue_again(
    run: Run, *, reason: str, actor: User | None = None, actor_name: str = "", not_before: datetime | None = None
) -> Attempt:
    if RunState.QUEUED not in TRANSITIONS[RunState(run.state)]:
        raise BadTransition(run.state, RunState.QUEUED)
    run.attempts.update(superseded=True, claim="")
    run.attempt_number += 1
    attempt = Attempt.objects.create(run=run, number=run.attempt_number, not_before=not_before)
    move(run=run, attempt=attempt, to=RunState.QUEUED, actor=actor, actor_name=actor_name, reason=reason)
    return attempt


@transaction.atomic
def set_auto_resume(*, run: Run, limit: int | None) -> Run:
    """How often in a row the run may be resumed automatically without progress; None: as the installation says."""
    run = lock(run.pk)
    run.auto_resume = limit
    run.full_clean(exclude=NOT_FROM_PEOPLE)
    run.live_seq += 1
    run.save()
    return run


# What the trainer sends


def add_events(*, run_id: str, attempt: int, rows: Iterable[NewEvent], seq: int) -> None:
    """Stores rows of the locked run under one live number."""
    EventRow.objects.bulk_create(
        [
            EventRow(
                run_id=run_id,
                attempt=attempt,
                iteration=row.iteration,
                kind=row.kind,
                key=row.key[:160],
                payload=dict(row.payload),
                time=row.time,
                live_seq=seq,
            )
            for row in rows
        ],
        batch_size=500,
    )


def rewind(*, run_id: str, attempt: int, iteration: int, seq: int) -> None:
    """Hides what earlier attempts did after `iteration`: `attempt` repeats it. For the locked run."""
    earlier = Attempt.objects.filter(run_id=run_id, number__lt=attempt)
    earlier.filter(Q(kept_until=None) | Q(kept_until__gt=iteration)).update(kept_until=iteration)
    EventRow.objects.filter(run_id=run_id, attempt__lt=attempt, iteration__gt=iteration, retired=False).update(
        retired=True, live_seq=seq
    )


def touch(run_id: str) -> None:
    """Tells the live streams that something of the run changed. For a change outside the state machine."""
    Run.objects.filter(pk=run_id).update(live_seq=F("live_seq") + 1)


@transaction.atomic
def describe(*, run: Run, name: str | None = None, notes: str | None = None, tags: Iterable[str] | None = None) -> Run:
    """Changes what people wrote about a run; None leaves a field as it is. Raises ValidationError."""
    run = lock(run.pk)
    if name is not None:
        run.name = name.strip()
    if notes is not None:
        run.notes = notes
    if tags is not None:
        run.tags = sorted({tag.strip() for tag in tags if tag.strip()})
    run.full_clean(exclude=NOT_FROM_PEOPLE)
    run.live_seq += 1
    run.save()
    return run
