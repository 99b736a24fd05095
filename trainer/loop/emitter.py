"""The one way out: envelopes appended to ``events.jsonl``, a line each, flushed at once."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TextIO

from pydantic import BaseModel

from trainer.contract import events as ev

_ECHOED = (ev.State, ev.Progress, ev.Scalars, ev.Checkpoint, ev.Phase, ev.Mark, ev.Log)


class EventWriter:
    """Writes the events of one attempt. ``seq`` counts from 1; the file must not exist yet (attempts never share one).

    ``echo`` shows events to a person or a pipe as well: JSON lines by default, or a function of its own.
    """

    def __init__(self, path: Path, *, run: str, attempt: int, echo: Callable[[BaseModel], None] | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = path.open("x", encoding="utf-8", buffering=1)
        self._run = run
        self._attempt = attempt
        self._echo = echo
        self.seq = 0

    def __call__(self, event: ev.Event) -> None:
        """Appends one event. Raises OSError when the disk is full."""
        self.seq += 1
        envelope = ev.Envelope(
            run=self._run,
            attempt=self._attempt,
            seq=self.seq,
            time=datetime.now(UTC),
            monotonic=time.monotonic(),
            event=event,
        )
        self._file.write(envelope.model_dump_json() + "\n")
        if self._echo is not None:
            self._echo(event)

    def scalars(self, axes: ev.Axes, values: Mapping[str, float]) -> None:
        """One batch of numbers; non-finite ones become null with a flag."""
        self(ev.Scalars(axes=axes, **ev.pack_numbers(values)))

    def log(self, message: str, level: Literal["debug", "info", "warning", "error"] = "info") -> None:
        """A line for the log tail."""
        self(ev.Log(level=level, message=message))

    def close(self) -> None:
        """Flushes and closes the file."""
        self._file.close()


def json_echo(event: BaseModel) -> None:
    """Events a script may follow, as JSON lines on standard output."""
    if isinstance(event, _ECHOED):
        sys.stdout.write(json.dumps(event.model_dump(mode="json", exclude_defaults=False)) + "\n")
        sys.stdout.flush()


class TerminalEcho:
    """For a person: one progress bar, and a line for what else happens."""

    def __init__(self) -> None:
        from tqdm import tqdm

        self._bar: tqdm | None = None
        self._new = tqdm
        self._shown: dict[str, str] = {}

    def __call__(self, event: BaseModel) -> None:
        if isinstance(event, ev.Progress):
            if self._bar is None:
                self._bar = self._new(
                    total=event.total_iterations, initial=event.iteration, unit="it", dynamic_ncols=True
                )
            self._bar.update(event.iteration - self._bar.n)
            self._bar.set_postfix({**self._shown, "stage": event.stage}, refresh=True)
        elif isinstance(event, ev.Scalars):
            for key in ("reward", "eval/accuracy", "entropy", "loss"):
                if event.values.get(key) is not None:
                    self._shown[key] = f"{event.values[key]:.3g}"
        elif isinstance(event, ev.Log | ev.Mark | ev.State) and event.message:
            self._new.write(event.message, file=sys.stderr)
