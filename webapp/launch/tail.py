"""Reading an attempt's events.jsonl from where the database stands."""

import logging
import tempfile
from pathlib import Path

from django.db import InterfaceError, OperationalError

from trainer.contract.redaction import NOTHING, Redactor
from webapp.launch import ingest
from webapp.runs.models import Attempt
from webapp.runs.services import Claim, ClaimLost
from webapp.runs.storage import attempt_uri, chunks, is_local, path_of

log = logging.getLogger(__name__)

# One transaction's worth: long enough to be quick, short enough that nobody waits for the lock.
BATCH_BYTES = 512 * 1024
LONGEST_LINE = 64 * 1024 * 1024


def events_path(run_id: str, number: int) -> Path:
    """The attempt's event file on this host."""
    return path_of(attempt_uri(run_id, number, "events.jsonl"))


class Tail:
    """Stores what is new in the file, batch by batch, without the run's secrets. Keeps no transaction open and no file."""

    def __init__(self, held: Claim, *, offset: int | None = None, redact: Redactor = NOTHING) -> None:
        self.held = held
        self.redact = redact
        self.path = events_path(held.run_id, held.number)
        self.offset = offset if offset is not None else _stored_offset(held)

    def step(self) -> bool:
        """Stores one batch; False when there is no complete line to store. Raises ClaimLost, or OperationalError for a
        database that is away.
        """
        data = self._read()
        if data is None:
            return self._pass_over_long_line()
        batch = ingest.parse(data, self.offset, redact=self.redact)
        try:
            self._store(batch)
        except (OperationalError, InterfaceError, ClaimLost):
            raise
        except Exception:
            # A line that the database or a table's own rules refuse would else stop the run's events for good.
            log.exception("Run %s: a batch of events was refused; storing its lines one by one.", self.held.run_id)
            for single in ingest.singly(data, batch, redact=self.redact):
                self._store_or_skip(single)
        return True

    def _store(self, batch: ingest.Batch) -> None:
        try:
            ingest.store(self.held, batch)
        except ingest.OffsetMoved as moved:
            log.info("Run %s was read up to byte %s already.", self.held.run_id, moved.offset)
            self.offset = moved.offset
        else:
            self.offset = batch.end

    def _store_or_skip(self, batch: ingest.Batch) -> None:
        if batch.begin != self.offset:
            return
        try:
            self._store(batch)
        except (OperationalError, InterfaceError, ClaimLost):
            raise
        except Exception as error:
            fault = f"The event at byte {batch.begin} of events.jsonl could not be stored and was skipped: {error}"[
                :2000
            ]
            self._store(ingest.Batch(batch.begin, batch.end, (), [fault.replace("\0", "")]))

    def _read(self) -> bytes | None:
        """At least one complete line from the offset on, or None."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return None
        if size <= self.offset:
            return None
        limit = BATCH_BYTES
        with self.path.open("rb") as file:
            while True:
                file.seek(self.offset)
                data = file.read(limit)
                if b"\n" in data:
                    return data
                # Torn, or one line longer than a batch.
                if len(data) < limit or limit >= LONGEST_LINE:
                    return None
                limit = min(4 * limit, LONGEST_LINE)

    def _pass_over_long_line(self) -> bool:
        """Skips a line that is longer than any event may be, once its end is there, so that it stops nothing else."""
        end = self._end_of_long_line()
        if end is None:
            return False
        fault = (
            f"The line at byte {self.offset} of events.jsonl has {end - self.offset:,} bytes and was skipped; an event "
            f"may have up to {LONGEST_LINE:,}."
        )
        self._store(ingest.Batch(self.offset, end, (), [fault]))
        return True

    def _end_of_long_line(self) -> int | None:
        """The offset after its line break; None where the line is not too long, or goes on."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return None
        at = self.offset + LONGEST_LINE
        if size < at:
            return None
        with self.path.open("rb") as file:
            file.seek(at)
            while piece := file.read(BATCH_BYTES):
                if b"\n" in piece:
                    return at + piece.index(b"\n") + 1
                at += len(piece)
        return None


def _stored_offset(held: Claim) -> int:
    return Attempt.objects.values_list("byte_offset", flat=True).get(pk=held.attempt_id)


def drain(held: Claim, *, redact: Redactor = NOTHING) -> None:
    """Everything that the file still holds; where it lies on another host, as far as that has stored it."""
    tail = Tail(held, redact=redact)
    if tail.path.exists() or is_local():
        _to_the_end(tail)
        return
    with tempfile.TemporaryDirectory() as folder:
        tail.path = Path(folder) / "events.jsonl"
        with tail.path.open("wb") as file:
            file.writelines(chunks(attempt_uri(held.run_id, held.number, "events.jsonl")))
        _to_the_end(tail)


def _to_the_end(tail: Tail) -> None:
    while tail.step():
        pass
