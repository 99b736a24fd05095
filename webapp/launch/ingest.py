"""Events into rows: a batch, its byte offset and the run's live number in one transaction.

The fence stands in front: whoever writes names its claim, and the offset it read from must be the one in the
database. So a batch is stored exactly once, whether the supervisor dies before the commit, after it, or in a second
process.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone
from pydantic import ValidationError

from trainer.contract.drawn import DRAWN, bounded
from trainer.contract.events import (
    Checkpoint,
    CheckpointRefused,
    CheckpointRemoved,
    Envelope,
    Evaluation,
    Log,
    Mark,
    Opaque,
    Phase,
    Progress,
    Rollouts,
    Scalars,
    State,
    parse_line,
)
from trainer.contract.redaction import NOTHING, Redactor
from webapp.checkpoints import retention
from webapp.checkpoints import services as checkpoints
from webapp.evals import services as evals
from webapp.metrics import services as metrics
from webapp.rollouts import services as rollouts
from webapp.runs import services as runs
from webapp.runs.models import OPAQUE, Attempt, EventRow, Run
from webapp.runs.states import RunState
from webapp.runs.storage import BadUri, is_local

log = logging.getLogger(__name__)

LARGEST_OPAQUE = 1_000_000
FAULT_LENGTH = 1000


class OffsetMoved(Exception):
    """The database has read further than this supervisor thinks (a commit whose answer got lost): read on from
    `offset`.
    """

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


@dataclass(frozen=True)
class Batch:
    """Complete lines of the file between two byte offsets. `faults` describe lines that are no events."""

    begin: int
    end: int
    envelopes: Sequence[Envelope]
    faults: Sequence[str] = ()


@dataclass
class _Rows:
    """What the batch adds, by kind."""

    axes: list[metrics.AxesRow] = field(default_factory=list)
    scalars: list[metrics.ScalarRow] = field(default_factory=list)
    events: list[runs.NewEvent] = field(default_factory=list)
    started: bool = False


def parse(data: bytes, begin: int, *, redact: Redactor = NOTHING) -> Batch:
    """The complete lines at the start of `data`, which was read at byte `begin`; a torn last line is left for the
    next time. `redact` takes out what the trainer should have taken out itself.
    """
    whole = data[: data.rfind(b"\n") + 1]
    envelopes, faults = [], []
    position = begin
    for line in whole.split(b"\n")[:-1]:
        if line.strip():
            try:
                envelopes.append(parse_line(_without(redact, line)))
            except ValueError as error:
                # One bad line must not cost the run its other events.
                text = f"Line at byte {position} of events.jsonl is no event and was skipped: {_why(error)}"
                faults.append(redact.text(text))
        position += len(line) + 1
    return Batch(begin, begin + len(whole), envelopes, faults)


def _without(redact: Redactor, line: bytes) -> bytes:
    return redact.json_line(line.decode(errors="replace")).encode() if redact else line


def _why(error: ValueError) -> str:
    """What is wrong with a line: the first fault and where it stands."""
    if not isinstance(error, ValidationError):
        return str(error)[:FAULT_LENGTH]
    first, *more = error.errors(include_url=False)
    place = ".".join(map(str, first["loc"]))
    rest = f" (and {len(more)} more)" if more else ""
    return f"{place}: {first['msg']}"[:FAULT_LENGTH] + rest


def singly(data: bytes, batch: Batch, *, redact: Redactor = NOTHING) -> Iterator[Batch]:
    """The batch line by line, each with its own offsets: to find the one that the database refuses."""
    position = batch.begin
    for line in data[: batch.end - batch.begin].split(b"\n")[:-1]:
        yield parse(line + b"\n", position, redact=redact)
        position += len(line) + 1


@transaction.atomic
def store(held: runs.Claim, batch: Batch) -> Run:
    """Writes the batch for the claim's attempt. Raises ClaimLost when the claim is gone, OffsetMoved when it was
    stored before.
    """
    run, attempt = runs.hold(held)
    if attempt.byte_offset != batch.begin:
        raise OffsetMoved(attempt.byte_offset)
    seq = run.live_seq + 1
    rows = _Rows(events=[_note(text, "warning") for text in batch.faults])
    for envelope in _fresh(attempt, run, batch.envelopes, rows):
        _take(run, attempt, envelope, rows, seq)
    metrics.store_axes(run_id=run.pk, attempt=attempt.number, rows=rows.axes, seq=seq)
    metrics.store_scalars(run_id=run.pk, attempt=attempt.number, rows=rows.scalars, seq=seq)
    runs.add_events(run_id=run.pk, attempt=attempt.number, rows=rows.events, seq=seq)
    attempt.byte_offset = batch.end
    run.live_seq = seq
    if rows.started and run.state == RunState.STARTING:
        runs.move(run=run, attempt=attempt, to=RunState.RUNNING, actor_name="trainer", reason="It has begun to work.")
    else:
        attempt.save()
        run.save()
    return run


def _fresh(attempt: Attempt, run: Run, envelopes: Iterable[Envelope], rows: _Rows) -> Iterable[Envelope]:
    """The envelopes of this attempt that were not seen before; gaps and strangers are noted in the run's log."""
    for envelope in envelopes:
        if envelope.run != run.pk or envelope.attempt != attempt.number:
            found = f"run {envelope.run}, attempt {envelope.attempt}"
            text = f"Refused an event of {found}, in the file of attempt {attempt.number}."
            rows.events.append(_note(text, "warning"))
            continue
        last = attempt.last_seq.get(envelope.writer, 0)
        if envelope.seq <= last:
            continue
        if envelope.seq > last + 1:
            text = f"Events {last + 1} to {envelope.seq - 1} of the writer {envelope.writer!r} are missing."
            rows.events.append(_note(text, "warning"))
        attempt.last_seq[envelope.writer] = envelope.seq
        yield envelope


def _note(message: str, level: str) -> runs.NewEvent:
    return runs.NewEvent(kind="log", payload={"level": level, "message": message}, time=timezone.now())


def _take(run: Run, attempt: Attempt, envelope: Envelope, rows: _Rows, seq: int) -> None:
    event, time = envelope.event, envelope.time
    axes = getattr(event, "axes", None)
    if axes is not None:
        rows.axes.append(metrics.AxesRow(axes.model_dump(), time))
    match event:
        case State():
            rows.started = rows.started or event.state == "running"
            run.versions = event.versions or run.versions
            payload = {"state": event.state, "message": event.message}
            rows.events.append(runs.NewEvent(kind="state", payload=payload, time=time))
        case Progress():
            _progress(run, event)
        case Scalars():
            rows.started = True
            rows.scalars.append(metrics.ScalarRow(event.axes.iteration, event.values, event.nonfinite))
        case Phase():
            run.phase = event.name[:60]
            rows.events.append(_event(event, "phase", time, key=event.name, payload={"title": event.title}))
        case Mark():
            if event.mark == "rewind":
                _rewind(run, attempt, event.iteration, seq)
            told: dict[str, Any] = {"message": event.message, "data": event.data}
            at = max(0, event.iteration)
            rows.events.append(runs.NewEvent(kind="mark", key=event.mark, payload=told, time=time, iteration=at))
        case Log():
            rows.events.append(
                runs.NewEvent(kind="log", payload={"level": event.level, "message": event.message}, time=time)
            )
        case Evaluation() | Rollouts() | Checkpoint() | CheckpointRemoved() | CheckpointRefused():
            _store_own(run, attempt, event, rows, time, seq)
        case Opaque():
            _keep_closed(run, event, rows, time)
        case _:
            assert isinstance(event, DRAWN)
            event = bounded(event)
            payload = event.model_dump(mode="json", exclude={"kind", "axes", "key"})
            rows.events.append(_event(event, event.kind, time, key=event.key, payload=payload))


def _keep_closed(run: Run, event: Opaque, rows: _Rows, time: datetime) -> None:
    """An event of a newer trainer is kept as it came, so that a newer release can open it; the log tells it once a kind."""
    key = event.of[:160]
    told = any(row.kind == OPAQUE and row.key == key for row in rows.events)
    if not told and not EventRow.objects.filter(run=run, kind=OPAQUE, key=key).exists():
        rows.events.append(_note(f"Events of the kind {key!r} are kept but not shown: {event.reason}.", "warning"))
    text = json.dumps(event.document)
    payload: dict[str, Any] = {"reason": event.reason, "document": event.document}
    if len(text) > LARGEST_OPAQUE:
        payload = {"reason": event.reason, "head": text[:LARGEST_OPAQUE], "length": len(text)}
    axes = event.document.get("axes")
    at = axes.get("iteration") if isinstance(axes, dict) else None
    iteration = at if isinstance(at, int) and 0 <= at < 2**31 else None
    rows.events.append(runs.NewEvent(kind=OPAQUE, key=key, payload=payload, time=time, iteration=iteration))


def _event(event: Any, kind: str, time: datetime, *, key: str, payload: dict[str, Any]) -> runs.NewEvent:
    return runs.NewEvent(kind=kind, key=key, payload=payload, time=time, iteration=event.axes.iteration)


def _progress(run: Run, event: Progress) -> None:
    run.iteration, run.total_iterations = event.iteration, event.total_iterations
    run.stage, run.stage_done, run.stage_total = event.stage[:60], event.done, event.total
    run.eta_seconds = event.eta_seconds


def _store_own(
    run: Run,
    attempt: Attempt,
    event: Evaluation | Rollouts | Checkpoint | CheckpointRemoved | CheckpointRefused,
    rows: _Rows,
    time: datetime,
    seq: int,
) -> None:
    """Events with tables of their own. One that cannot be stored is told in the log and costs nothing else."""
    document = event.model_dump(mode="json")
    number = attempt.number
    try:
        match event:
            case Evaluation():
                evals.store_evaluation(run=run, attempt=number, event=document, time=time, seq=seq)
            case Rollouts():
                rollouts.store_part(run_id=run.pk, attempt=number, event=document, seq=seq)
            case Checkpoint():
                checkpoints.store_checkpoint(run=run, attempt=number, event=document, time=time, seq=seq)
                if is_local():
                    # With a bucket, once the files have arrived there (`webapp.launch.attempt_files`).
                    transaction.on_commit(lambda: retention.apply_to_run(run.pk), robust=True)
            case CheckpointRemoved():
                checkpoints.mark_removed(run_id=run.pk, uri=event.uri, time=time, seq=seq)
            case CheckpointRefused():
                checkpoints.mark_refused(run_id=run.pk, uri=event.uri, reason=event.reason, seq=seq)
    except (BadUri, evals.UnknownSet) as error:
        rows.events.append(_note(f"The event {event.kind!r} was refused: {error}.", "error"))


def _rewind(run: Run, attempt: Attempt, iteration: int, seq: int) -> None:
    scope = {"run_id": run.pk, "attempt": attempt.number, "iteration": iteration, "seq": seq}
    runs.rewind(**scope)  # type: ignore[arg-type]
    metrics.rewind(run_id=run.pk, iteration=iteration, seq=seq)
    evals.rewind(**scope)  # type: ignore[arg-type]
    rollouts.rewind(**scope)  # type: ignore[arg-type]
    checkpoints.rewind(**scope)  # type: ignore[arg-type]
    run.iteration = max(0, iteration)
