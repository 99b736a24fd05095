"""Trainers elsewhere: they claim an attempt, send over HTTP what others write into events.jsonl, and say how it ended.

The rules are those of a supervisor on this machine: the claim is the fence, a claim without signs of life is lost, and
every event is stored once, however often it is sent. No secret is given to them; what they tell of one that the run names
is taken out all the same.
"""

from collections.abc import Sequence

from django.db import DataError, transaction

from trainer.contract.events import Envelope
from webapp.launch import endings, ingest
from webapp.launch.outcome import Outcome
from webapp.launch.secrets import redactor_of
from webapp.runs import services as runs
from webapp.runs.models import Attempt, Run
from webapp.runs.states import BadTransition, RunState


class BadEvents(ValueError):
    """Nothing of the batch was stored. `problems` are (number of the line from 1, what is wrong with it)."""

    def __init__(self, problems: Sequence[tuple[int, str]]) -> None:
        super().__init__("; ".join(f"line {number}: {text}" for number, text in problems))
        self.problems = list(problems)


class EventGap(Exception):
    """Nothing of the batch was stored: events of `writer` between `through` and the first one sent are missing."""

    def __init__(self, writer: str, through: int) -> None:
        super().__init__(writer, through)
        self.writer, self.through = writer, through


def take(run: Run, *, worker: str) -> runs.Claim:
    """Claims the run's queued attempt. Raises BadTransition when it is not queued, or someone else was quicker."""
    attempt = Attempt.objects.get(run=run, number=run.attempt_number)
    held = runs.claim(attempt.pk, place=runs.Place(worker, host=worker))
    if held is None:
        raise BadTransition(Run.objects.values_list("state", flat=True).get(pk=run.pk), RunState.STARTING)
    return held


def beat(held: runs.Claim) -> bool:
    """A sign of life; True when the trainer is asked to save and leave. Raises ClaimLost."""
    if not runs.renew(held):
        raise runs.ClaimLost
    return runs.stop_requested(held.run_id)


def accept(held: runs.Claim, data: bytes) -> dict[str, int]:
    """Stores JSON lines of events, all or none; the number of the last event by writer that is stored now.

    What was stored before is passed over. Raises ClaimLost, BadEvents, EventGap.
    """
    lines = [line for line in data.split(b"\n") if line.strip()]
    redact = redactor_of(held.run_id)
    envelopes: list[Envelope] = []
    problems: list[tuple[int, str]] = []
    for number, line in enumerate(lines, start=1):
        found = ingest.parse(line + b"\n", 0, redact=redact)
        envelopes += found.envelopes
        problems += [(number, text) for text in found.faults]
        for one in found.envelopes:
            if (one.run, one.attempt) != (held.run_id, held.number):
                text = f"is of run {one.run}, attempt {one.attempt}; expected {held.run_id}, attempt {held.number}"
                problems.append((number, text))
    if problems:
        raise BadEvents(problems)
    try:
        return _store(held, envelopes)
    except (DataError, OverflowError) as error:
        raise BadEvents([(1, f"the database refuses some event of the batch: {error}".replace("\0", ""))]) from error


@transaction.atomic
def _store(held: runs.Claim, envelopes: Sequence[Envelope]) -> dict[str, int]:
    _run, attempt = runs.hold(held)
    through = dict(attempt.last_seq)
    for one in envelopes:
        last = through.get(one.writer, 0)
        if one.seq > last + 1:
            raise EventGap(one.writer, last)
        through[one.writer] = max(last, one.seq)
    # Nothing is read from a file, so its offset stays where it is.
    ingest.store(held, ingest.Batch(attempt.byte_offset, attempt.byte_offset, envelopes))
    return through


def end(held: runs.Claim, *, to: RunState, exit_code: int | None, reason: str) -> Run:
    """Ends the attempt as the trainer says. Raises ClaimLost."""
    return endings.end(held, Outcome(to, redactor_of(held.run_id).text(reason)), exit_code=exit_code)
