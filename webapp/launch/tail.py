"""Reading an attempt's events.jsonl from where the database stands."""

import logging
from pathlib import Path

from django.db import InterfaceError, OperationalError

from webapp.launch import ingest
from webapp.runs.models import Attempt
from webapp.runs.services import Claim, ClaimLost
from webapp.runs.storage import attempt_uri, path_of

log = logging.getLogger(__name__)

# One transaction's worth: long enough to be quick, short enough that nobody waits for the lock.
BATCH_BYTES = 512 * 1024
LONGEST_LINE = 64 * 1024 * 1024


def events_path(run_id: str, number: int) -> Path:
    """The attempt's event file on this host."""
    return path_of(attempt_uri(run_id, number, "events.jsonl"))


class Tail:
    """Stores what is new in the file, batch by batch. Keeps no transaction open and no file."""

    def __init__(self, held: Claim, *, offset: int | None = None) -> None:
        self.held = held
        self.path = events_path(held.run_id, held.number)
        self.offset = offset if offset is not None else _stored_offset(held)

    def step(self) -> bool:
        """Stores one batch; False when there is no complete line to store. Raises ClaimLost, or OperationalError for a
        database that is away.
        """
        data = self._read()
        if data is None:
            return False
        batch = ingest.parse(data, self.offset)
        try:
            self._store(batch)
        except (OperationalError, InterfaceError, ClaimLost):
            raise
        except Exception:
            # A line that the database or a table's own rules refuse would else stop the run's events for good.
            log.exception("Run %s: a batch of events was refused; storing its lines one by one.", self.held.run_id)
            for single in ingest.singly(data, batch):
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
                limit *= 4


def _stored_offset(held: Claim) -> int:
    return Attempt.objects.values_list("byte_offset", flat=True).get(pk=held.attempt_id)


def drain(held: Claim) -> None:
    """Everything that the file still holds."""
    tail = Tail(held)
    while tail.step():
        pass
