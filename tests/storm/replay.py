"""The rows that a run's event files call for, worked out from the files alone, by another way than the ingestion's.

Each attempt's file is read up to the byte that the database says it has stored. Rows are keyed as the tables are; what
a later attempt's rewind retires is marked so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from trainer.contract import events as ev
from webapp.runs.models import Attempt, Run
from webapp.runs.storage import attempt_uri, read

NONFINITE = {None: 0, "nan": 1, "inf": 2, "-inf": 3}
NUL, REPLACEMENT = rb"\u0000", rb"\ufffd"


@dataclass
class Expected:
    """Rows by table. `faults` are what is wrong with the files themselves, `unread` the complete lines beyond what the
    database has stored, by attempt.
    """

    points: dict[tuple[str, int, int], tuple[float | None, int]] = field(default_factory=dict)
    axes: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    evaluations: dict[tuple[int, int, str, str, str], tuple[Any, ...]] = field(default_factory=dict)
    parts: dict[tuple[int, str], tuple[Any, ...]] = field(default_factory=dict)
    checkpoints: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    events: Counter[tuple[int, str, str, int | None, str]] = field(default_factory=Counter)
    rewinds: dict[int, int] = field(default_factory=dict)
    last_seq: dict[int, dict[str, int]] = field(default_factory=dict)
    unread: dict[int, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def kept_until(self, attempt: int) -> int | None:
        """The attempt's last iteration that no later attempt repeats; None: all of them count."""
        return min((kept for by, kept in self.rewinds.items() if by > attempt), default=None)

    def retired(self, attempt: int, iteration: int) -> bool:
        """Whether a later attempt repeats this iteration of the attempt."""
        last = self.kept_until(attempt)
        return last is not None and iteration > last


def replay(run: Run) -> Expected:
    """What the database must hold of the run."""
    expected = Expected()
    for attempt in run.attempts.order_by("number"):
        for envelope in _envelopes(attempt, expected):
            _add(expected, run.pk, attempt.number, envelope.event)
    return expected


def _envelopes(attempt: Attempt, expected: Expected) -> Iterable[ev.Envelope]:
    name = f"attempt {attempt.number}"
    try:
        data = read(attempt_uri(attempt.run_id, attempt.number, "events.jsonl"))
    except FileNotFoundError:
        data = b""
    stored, rest = data[: attempt.byte_offset], data[attempt.byte_offset :]
    if len(stored) < attempt.byte_offset or (stored and not stored.endswith(b"\n")):
        expected.faults.append(f"{name}: the database has read to byte {attempt.byte_offset}, which ends no line")
    if b"\n" in rest:
        expected.unread[attempt.number] = rest.count(b"\n")
    seqs = expected.last_seq.setdefault(attempt.number, {})
    for line in stored.splitlines():
        envelope = ev.parse_line(line.replace(NUL, REPLACEMENT))
        last = seqs.get(envelope.writer, 0)
        if (envelope.run, envelope.attempt) != (attempt.run_id, attempt.number):
            expected.faults.append(f"{name}: an event of run {envelope.run}, attempt {envelope.attempt}")
        if envelope.seq != last + 1:
            expected.faults.append(f"{name}: seq {envelope.seq} of {envelope.writer} follows {last}")
        seqs[envelope.writer] = envelope.seq
        yield envelope


def _add(expected: Expected, run_id: str, attempt: int, event: Any) -> None:
    axes = getattr(event, "axes", None)
    if axes is not None:
        expected.axes[axes.iteration, attempt] = axes.model_dump()
    match event:
        case ev.Scalars():
            for key, value in event.values.items():
                flag = NONFINITE[event.nonfinite.get(key)]
                expected.points[key, event.axes.iteration, attempt] = (value, flag)
        case ev.Evaluation():
            key = (attempt, event.axes.iteration, event.name, event.policy, event.set_id)
            counts = [[p.uid, p.n, p.c] for p in event.problems]
            expected.evaluations[key] = (event.weights_hash, counts)
        case ev.Rollouts():
            groups = [[g.uid, g.n, g.c, g.first_row, g.mean_reward] for g in event.groups]
            expected.parts[attempt, f"runs/{run_id}/{event.uri}"] = (event.axes.iteration, event.rows, groups)
        case ev.Checkpoint():
            told = (attempt, event.axes.iteration, event.weights_hash, event.final)
            expected.checkpoints[f"runs/{run_id}/{event.uri}"] = told
        case ev.CheckpointRemoved():
            expected.removed.add(f"runs/{run_id}/{event.uri}")
        case ev.Progress() | ev.CheckpointRefused():
            pass
        case ev.State():
            expected.events[attempt, "state", "", None, event.state] += 1
        case ev.Log():
            expected.events[attempt, "log", "", None, event.message] += 1
        case ev.Mark():
            if event.mark == "rewind":
                expected.rewinds[attempt] = event.iteration
            expected.events[attempt, "mark", event.mark, max(0, event.iteration), event.message] += 1
        case _:
            key = event.name if isinstance(event, ev.Phase) else event.key
            expected.events[attempt, event.kind, key, event.axes.iteration, ""] += 1
