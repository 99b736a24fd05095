"""Where a worker's runs run: as many slots as trainers it may have at once, each with a device of its own or none.

A device is locked for as long as its worker or any trainer that it started lives: the trainers inherit the lock. So a
worker that is started again waits for the trainer of its killed predecessor, which still saves, and two workers never
share a device by mistake.
"""

import fcntl
import logging
import os
import queue
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from webapp.runs.services import Place

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Slot:
    """One trainer's place. `device` is what the trainer sees as CUDA_VISIBLE_DEVICES; None leaves that as it is here.
    `lock` is the descriptor of the device's lock, for the trainer to inherit.
    """

    number: int = 0
    device: str | None = None
    lock: int | None = None


ANYWHERE = Slot()


class NoSlot(Exception):
    """Every slot has a trainer: nothing may be started."""


def slots_of(*, count: int, devices: Sequence[str], locks: Path) -> list[Slot]:
    """`count` slots: one for each device, whose lock it waits for, or all of them without any (their trainers see none)."""
    if not devices:
        return [Slot(number, "") for number in range(count)]
    return [Slot(number, device, _locked(device, locks)) for number, device in enumerate(devices)]


def _locked(device: str, folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"device-{socket.gethostname()}-{device}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.warning("Device %s is still held by another worker, or by a trainer that saves; waiting for it.", device)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


class Slots:
    """The free slots of this process."""

    def __init__(self, *, worker: str, slots: Sequence[Slot]) -> None:
        self.worker = worker
        self.host = socket.gethostname()
        self._free: queue.SimpleQueue[Slot] = queue.SimpleQueue()
        for slot in slots:
            self._free.put(slot)

    @contextmanager
    def taken(self) -> Iterator[Slot]:
        """A free slot, for the length of a trainer's life. Raises NoSlot."""
        try:
            slot = self._free.get_nowait()
        except queue.Empty:
            raise NoSlot from None
        try:
            yield slot
        finally:
            self._free.put(slot)

    def place(self, slot: Slot) -> Place:
        """The slot as attempts and pages name it."""
        return Place(name=f"{self.worker}/slot {slot.number}", host=self.host, device=slot.device or "")
