"""The scheduler's jobs: attempts whose worker is gone, and queued attempts whose message is gone."""

import logging
from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from webapp.launch.outcome import Outcome
from webapp.launch.services import enqueue
from webapp.launch.tail import drain
from webapp.runs import services as runs
from webapp.runs.models import Attempt
from webapp.runs.selectors import last_state
from webapp.runs.states import RunState

log = logging.getLogger(__name__)

REAPER = "scheduler"
REAP_EVERY = 15.0
SEND_EVERY = 15.0
FIRST_RESEND = timedelta(seconds=30)
LONGEST_RESEND = timedelta(minutes=10)


def reap() -> int:
    """Takes attempts from their worker after two sightings of an expired lease, `REAP_EVERY` apart; how many were."""
    taken = 0
    for attempt_id in runs.overdue(patience=REAP_EVERY * 0.8):
        held = runs.seize(attempt_id, worker=REAPER, lease_seconds=settings.LEASE_SECONDS)
        if held is not None:
            _bury(held)
            taken += 1
    runs.suspect()
    return taken


def _bury(held: runs.Claim) -> None:
    """Reads what the trainer still wrote, and ends the attempt as its last words say, or as lost."""
    try:
        drain(held)
    except OSError as error:
        log.warning("The events of attempt %s of run %s cannot be read: %s", held.number, held.run_id, error)
    outcome = _last_words(held)
    try:
        runs.finish(held, to=outcome.state, exit_code=None, reason=outcome.message, worker=REAPER)
    except runs.ClaimLost:
        log.info("Attempt %s of run %s went on without the reaper.", held.number, held.run_id)


def _last_words(held: runs.Claim) -> Outcome:
    state, message = last_state(held.run_id, held.number)
    if state == "finished":
        return Outcome(RunState.FINISHED, "The run reached its budget.")
    if state == "stopped":
        return Outcome(RunState.STOPPED, f"Saved and left, because its worker went away. {message}".strip())
    if state == "failed":
        return Outcome(RunState.FAILED, message or "The trainer failed; its worker went away before saying why.")
    return Outcome(
        RunState.LOST,
        "The worker that held this run has been silent for too long. Everything up to its last event is kept; "
        "resume it to go on from the newest checkpoint.",
    )


def send_again() -> int:
    """Sends another message for queued attempts, the rarer the longer they wait: a full queue is not a lost message."""
    now = timezone.now()
    sent = 0
    for attempt in Attempt.objects.filter(state=RunState.QUEUED, superseded=False):
        pause = min(FIRST_RESEND * 2 ** min(attempt.messages_sent, 10), LONGEST_RESEND)
        if attempt.enqueued_at is None or attempt.enqueued_at + pause < now:
            enqueue(attempt)
            sent += 1
    return sent
