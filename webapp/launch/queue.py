"""The scheduler's jobs about runs: attempts whose worker is gone, and queued attempts whose message is gone.

Nothing here compares the clocks of two machines, or trusts one clock to go evenly. A worker is silent when its
attempt's `beats` stand still over several looks of one scheduler in a row. A scheduler that slept, or could not reach
the database, has not looked meanwhile; a clock that jumps changes no count. Two schedulers count each for themselves,
and take an attempt away by compare-and-swap.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from webapp.launch.endings import SCHEDULER, end, is_due
from webapp.launch.outcome import Again, Outcome
from webapp.launch.secrets import redactor_of, scrub
from webapp.launch.services import enqueue
from webapp.launch.tail import drain
from webapp.runs import services as runs
from webapp.runs.models import Attempt
from webapp.runs.selectors import heartbeats, last_sign, last_state
from webapp.runs.states import RunState

log = logging.getLogger(__name__)

LONGEST_RESEND = timedelta(minutes=10)


def beat_every() -> float:
    """Seconds between two signs of life of a worker, and between two looks of a scheduler."""
    return float(settings.LEASE_SECONDS) / runs.BEATS_PER_LEASE


class Watch:
    """Counts the looks in a row at which something has not moved. Its caller keeps the looks apart."""

    def __init__(self, *, patience: int) -> None:
        self.patience = patience
        self.seen: dict[int, tuple[int, int]] = {}

    def look(self, now: Mapping[int, int]) -> list[tuple[int, int]]:
        """(id, value) of what has stood still for `patience` looks after the one that first saw the value."""
        before, self.seen = self.seen, {}
        for key, value in now.items():
            old, looks = before.get(key, (value, -1))
            self.seen[key] = (value, looks + 1 if old == value else 0)
        return [(key, value) for key, (value, looks) in self.seen.items() if looks >= self.patience]


# One look more than beats fit into a lease: the first beat may have come just before the first look.
_watch = Watch(patience=runs.BEATS_PER_LEASE + 1)


def reap(watch: Watch = _watch) -> int:
    """One look: takes attempts away from workers that have been silent for a lease; how many."""
    taken = 0
    for attempt_id, beats in watch.look(heartbeats()):
        held = runs.seize(attempt_id, beats=beats)
        if held is not None:
            _bury(held)
            taken += 1
    return taken


def _bury(held: runs.Claim) -> None:
    """Reads what the trainer still wrote, and ends the attempt as its last words say, or as lost."""
    redact = redactor_of(held.run_id)
    try:
        try:
            drain(held, redact=redact)
            scrub(held.run_id, held.number, redact)
        except OSError as error:
            log.warning("The events of attempt %s of run %s cannot be read: %s", held.number, held.run_id, error)
        when, said = last_sign(held.run_id, held.number), _last_words(held)
        said = replace(said, message=redact.text(said.message))
        end(held, said, exit_code=None, worker=SCHEDULER, ended_at=when)
    except runs.ClaimLost:
        log.info("Attempt %s of run %s was taken over from this scheduler.", held.number, held.run_id)


def _last_words(held: runs.Claim) -> Outcome:
    state, message = last_state(held.run_id, held.number)
    if state == "finished":
        return Outcome(RunState.FINISHED, "The run reached its budget.")
    if state == "stopped":
        text = f"Saved and left, because its worker went away. {message}".strip()
        return Outcome(RunState.STOPPED, text, Again.COUNTED)
    if state == "failed":
        return Outcome(RunState.FAILED, message or "The trainer failed; its worker went away before saying why.")
    return Outcome(
        RunState.LOST,
        "The worker that held this run has been silent for too long. Everything up to its last event is kept.",
        Again.COUNTED,
    )


def send_again() -> int:
    """Sends a message for queued attempts whose pause is over, and another one, the rarer the longer they wait: a full
    queue is not a lost message. How many were sent.
    """
    now, sent = timezone.now(), 0
    for attempt in Attempt.objects.filter(state=RunState.QUEUED, superseded=False).select_related("run"):
        pause = min(
            timedelta(seconds=settings.RESEND_SECONDS) * 2 ** min(attempt.messages_sent - 1, 10), LONGEST_RESEND
        )
        # The distance, because a clock that was set back must not silence the queue.
        waits = attempt.enqueued_at is not None and abs(now - attempt.enqueued_at) < pause
        if is_due(attempt.not_before, now) and not waits:
            sent += enqueue(attempt)
    return sent
