"""Writes about runs: making them, moving them through their states, claims and leases, retiring what is repeated.

Functions that take `run` from the outside lock it first; those documented with "locked" expect the caller's lock
(`lock`). On SQLite every transaction is IMMEDIATE, which is the same lock.
"""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from webapp.accounts.models import User
from webapp.projects.models import Project
from webapp.runs.models import Attempt, EventRow, Run, Transition, new_run_id
from webapp.runs.states import ACTIVE, OVER, TRANSITIONS, BadTransition, RunState

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
) -> Run:
    """A queued run with its first attempt. `config` is the resolved document; nothing here starts it.

    `run_id` is an id that was made beforehand: a second run of the same id raises ValidationError.
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
        live_seq=1,
    )
    run.full_clean(exclude=NOT_FROM_PEOPLE)
    run.save(force_insert=True)
    Attempt.objects.create(run=run, number=1)
    _note(run, source="", target=RunState.QUEUED, actor=user, reason="Launched.")
    return run


def move(
    *, run: Run, attempt: Attempt, to: RunState, reason: str = "", actor: User | None = None, actor_name: str = ""
) -> None:
    """One step of the state machine, for the locked run and its current attempt together. Raises BadTransition."""
    if to not in TRANSITIONS[RunState(run.state)]:
        raise BadTransition(run.state, to)
    now = timezone.now()
    source, run.state, attempt.state = run.state, to, to
    run.message = reason
    run.live_seq += 1
    if to == RunState.RUNNING and run.started_at is None:
        run.started_at = now
    if to in OVER:
        run.ended_at = attempt.ended_at = now
        run.eta_seconds = None
        attempt.claim, attempt.lease_until, attempt.message = "", None, reason
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


# Claims and leases


@transaction.atomic
def claim(attempt_id: int, *, worker: str, lease_seconds: float) -> Claim | None:
    """Takes a queued attempt for this worker by compare-and-swap; None when someone else has it or it is over.

    A message that arrives twice, or after the run was cancelled, ends here.
    """
    token, now = secrets.token_hex(16), timezone.now()
    taken = Attempt.objects.filter(pk=attempt_id, state=RunState.QUEUED, superseded=False, claim="").update(
        claim=token,
        worker=worker,
        heartbeat_at=now,
        started_at=now,
        lease_until=now + timedelta(seconds=lease_seconds),
        suspected_at=None,
    )
    if not taken:
        return None
    run_id = Attempt.objects.values_list("run_id", flat=True).get(pk=attempt_id)
    run = lock(run_id)
    attempt = Attempt.objects.get(pk=attempt_id)
    move(run=run, attempt=attempt, to=RunState.STARTING, reason=f"Taken by {worker}.", actor_name=worker)
    return Claim(attempt_id, run.pk, attempt.number, token)


def renew(held: Claim, *, lease_seconds: float, pid: int | None = None) -> bool:
    """Heartbeat: True while the claim holds. One statement, no lock on the run."""
    now = timezone.now()
    fields: dict[str, Any] = {
        "heartbeat_at": now,
        "lease_until": now + timedelta(seconds=lease_seconds),
        "suspected_at": None,
    }
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
def finish(held: Claim, *, to: RunState, exit_code: int | None, reason: str, worker: str = "") -> Run:
    """Ends the claim's attempt and with it the run; `worker` is who says so, by default who claimed it. Raises
    ClaimLost.
    """
    run, attempt = hold(held)
    attempt.exit_code = exit_code
    move(run=run, attempt=attempt, to=to, reason=reason, actor_name=worker or attempt.worker)
    return run


@transaction.atomic
def suspect(*, now: datetime | None = None) -> int:
    """Marks the attempts whose lease has run out; the number of newly marked ones.

    Two sightings are needed before an attempt is lost: after a database restart the reaper may look before the
    workers renew.
    """
    now = now or timezone.now()
    late = Attempt.objects.filter(state__in=ACTIVE, lease_until__lt=now, suspected_at=None)
    return late.update(suspected_at=now)


def overdue(*, patience: float, now: datetime | None = None) -> list[int]:
    """Ids of attempts that stayed suspected for `patience` seconds without a renewal."""
    now = now or timezone.now()
    found = Attempt.objects.filter(
        state__in=ACTIVE, lease_until__lt=now, suspected_at__lte=now - timedelta(seconds=patience)
    )
    return list(found.values_list("pk", flat=True))


@transaction.atomic
def seize(attempt_id: int, *, worker: str, lease_seconds: float, now: datetime | None = None) -> Claim | None:
    """Takes an overdue attempt away from its silent worker, whose later writes are refused; None if that is back."""
    now, token = now or timezone.now(), secrets.token_hex(16)
    taken = Attempt.objects.filter(
        pk=attempt_id, state__in=ACTIVE, lease_until__lt=now, suspected_at__isnull=False
    ).update(claim=token, lease_until=now + timedelta(seconds=lease_seconds))
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
            reason="Cancelled before it started.",
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
    BadTransition.
    """
    run = lock(run.pk)
    if RunState.QUEUED not in TRANSITIONS[RunState(run.state)]:
        raise BadTransition(run.state, RunState.QUEUED)
    run.attempts.update(superseded=True, claim="")
    run.attempt_number += 1
    attempt = Attempt.objects.create(run=run, number=run.attempt_number)
    move(run=run, attempt=attempt, to=RunState.QUEUED, actor=user, reason=reason)
    return attempt


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
