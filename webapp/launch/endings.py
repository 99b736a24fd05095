"""How an attempt ends, and with it the run, and whether the run goes on by itself.

Ending and queueing again are one transaction, so that nothing is forgotten between them. The new attempt is a row that
waits; the scheduler sends its message when its pause is over.

What is limited is the number of automatic resumes in a row without a new checkpoint: a long run on machines that come
and go is not stopped by its age, a run that always dies at the same place is.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from webapp.checkpoints.selectors import newest_iteration
from webapp.launch.outcome import Again, Outcome
from webapp.launch.services import enqueue
from webapp.runs import services as runs
from webapp.runs.models import Run

SCHEDULER = "scheduler"
LONGEST_PAUSE = timedelta(minutes=10)


@dataclass(frozen=True)
class Resumption:
    """How the run goes on: the new attempt's reason, and the count that goes with it."""

    reason: str
    count: int
    resumed_from: int | None
    pause: timedelta


@transaction.atomic
def end(
    held: runs.Claim, outcome: Outcome, *, exit_code: int | None, worker: str = "", ended_at: datetime | None = None
) -> Run:
    """Ends the claim's attempt as the outcome says, and queues the run again where it may go on by itself. Raises
    ClaimLost.
    """
    run, _attempt = runs.hold(held)
    resumption, refusal = _plan(run, outcome)
    reason = f"{outcome.message} {refusal}".strip()
    run = runs.finish(held, to=outcome.state, exit_code=exit_code, reason=reason, worker=worker, ended_at=ended_at)
    if resumption is not None:
        attempt = runs.resume_automatically(
            run=run,
            reason=resumption.reason,
            actor_name=SCHEDULER,
            count=resumption.count,
            resumed_from=resumption.resumed_from,
            not_before=timezone.now() + resumption.pause if resumption.pause else None,
        )
        if not resumption.pause:
            enqueue(attempt)
    return run


def _plan(run: Run, outcome: Outcome) -> tuple[Resumption | None, str]:
    """How the run goes on, or why it does not although it was interrupted."""
    if outcome.again is Again.NO or run.stop_requested_at is not None:
        return None, ""
    limit = run.auto_resume_limit
    if not limit:
        return None, "Automatic resumes are switched off for it."
    if outcome.again is Again.FREELY:
        reason = f"Waits for another worker. {outcome.message}"
        return Resumption(reason, run.auto_resumes, run.resumed_from, timedelta()), ""
    newest = newest_iteration(run.pk)
    progressed = run.resumed_from is None or newest > run.resumed_from
    count = 1 if progressed else run.auto_resumes + 1
    if count > limit:
        times = "once" if limit == 1 else f"{limit} times"
        return None, f"It was resumed automatically {times} without reaching a new checkpoint, and is not again."
    pause = min(timedelta(seconds=settings.RESUME_PAUSE) * 2 ** (count - 1), LONGEST_PAUSE)
    wait = f" after a pause of {pause.total_seconds():.0f} s" if pause else ""
    reason = f"Resumed automatically{wait}, {count} of {limit} without a new checkpoint. {outcome.message}"
    return Resumption(reason, count, newest, pause), ""


def is_due(not_before: datetime | None, now: datetime) -> bool:
    """Whether a pause is over. A clock that was set back must not make it endless: no pause is longer than the longest."""
    return not_before is None or not now < not_before <= now + LONGEST_PAUSE
