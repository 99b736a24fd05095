"""The one way out: envelopes appended to ``events.jsonl``, a line each, flushed at once."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TextIO

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from trainer.contract import events as ev
from trainer.contract.drawn import bounded
from trainer.contract.redaction import NOTHING, Redactor

_ECHOED = (ev.State, ev.Progress, ev.Scalars, ev.Checkpoint, ev.Phase, ev.Mark, ev.Log)


class EventWriter:
    """Writes the events of one attempt. ``seq`` counts from 1; the file must not exist yet (attempts never share one).

    ``echo`` shows events to a person or a pipe as well: JSON lines by default, or a function of its own. ``redact`` takes
    the run's secrets out of what is written; whoever writes files of its own asks it too.
    """

    def __init__(
        self,
        path: Path,
        *,
        run: str,
        attempt: int,
        echo: Callable[[BaseModel], None] | None = None,
        redact: Redactor = NOTHING,
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = path.open("x", encoding="utf-8", buffering=1)
        self.run = run
        self.attempt = attempt
        self._echo = echo
        self.redact = redact
        self.seq = 0

    def __call__(self, event: ev.Event) -> None:
        """Appends one event. Raises OSError when the disk is full."""
        self.seq += 1
        # Before it is kept to a size: half a value would not be found.
        event = self._without_secrets(event)
        envelope = ev.Envelope(
            run=self.run,
            attempt=self.attempt,
            seq=self.seq,
            time=datetime.now(UTC),
            monotonic=time.monotonic(),
            event=bounded(event),
        )
        self._file.write(_line(envelope) + "\n")
        if self._echo is not None:
            self._echo(event)

    def _without_secrets(self, event: ev.Event) -> ev.Event:
        if not self.redact:
            return event
        document = event.model_dump(mode="json")
        clean = self.redact.value(document)
        try:
            return event if clean == document else type(event).model_validate(clean)
        except ValidationError:
            text = f"An event {event.kind!r} was left out: a secret stood in it where only certain words may stand."
            return ev.Log(level="warning", message=text)

    def scalars(self, axes: ev.Axes, values: Mapping[str, float]) -> None:
        """One batch of numbers; non-finite ones become null with a flag."""
        self(ev.Scalars(axes=axes, **ev.pack_numbers(values)))

    def log(self, message: str, level: Literal["debug", "info", "warning", "error"] = "info") -> None:
        """A line for the log tail."""
        self(ev.Log(level=level, message=message))

    def close(self) -> None:
        """Flushes and closes the file."""
        self._file.close()


class SilentWriter(EventWriter):
    """Of a process whose events the first one writes."""

    def __init__(self, *, run: str, attempt: int, redact: Redactor = NOTHING) -> None:
        self.run, self.attempt, self.redact, self.seq = run, attempt, redact, 0

    def __call__(self, event: ev.Event) -> None:
        """Nothing is written."""

    def close(self) -> None:
        """There is nothing to close."""


def _line(envelope: ev.Envelope) -> str:
    try:
        return envelope.model_dump_json()
    except PydanticSerializationError:
        # A model has sampled a lone surrogate, which UTF-8 cannot hold.
        return json.dumps(ev.cleaned(envelope.model_dump(mode="json")))


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
