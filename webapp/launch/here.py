"""What this process is as a worker: its slots, its row, and whether it takes runs now.

A process that has not signed in (a test, a task called by hand) is a worker with one slot and no row.
"""

import logging
import socket
import threading
from collections.abc import Callable

from django.db import InterfaceError, OperationalError, close_old_connections

from webapp.launch import workers
from webapp.launch.models import Worker
from webapp.launch.shutdown import leaving
from webapp.launch.slots import ANYWHERE, Slots

log = logging.getLogger(__name__)

SIGN_EVERY = 5.0

_slots = Slots(worker=socket.gethostname(), slots=[ANYWHERE])
_row: Worker | None = None


def become(row: Worker | None, slots: Slots) -> None:
    """Makes this process the signed-in worker; without a row it is none any more."""
    global _row, _slots
    _row, _slots = row, slots


def slots() -> Slots:
    """The slots of this process."""
    return _slots


def takes_runs() -> bool:
    """Whether a run may be started here: not while the worker leaves, and not while it is drained."""
    if leaving.is_set():
        return False
    return _row is None or not Worker.objects.filter(pk=_row.pk, session=_row.session, draining=True).exists()


class Presence:
    """The worker's signs of life, in a thread of their own; `on_drain(draining)` is called when that has changed.

    A database that is away is asked again at the next sign.
    """

    def __init__(self, row: Worker, *, on_drain: Callable[[bool], None]) -> None:
        self.row = row
        self.on_drain = on_drain
        self.draining = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="presence", daemon=True)

    def __enter__(self) -> "Presence":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()
        try:
            workers.sign_out(self.row)
        except (OperationalError, InterfaceError) as error:
            log.warning("The database does not answer (%s); the worker counts as gone when it is silent.", error)

    def _run(self) -> None:
        while not self._over.wait(SIGN_EVERY):
            close_old_connections()
            try:
                self.sign()
            except (OperationalError, InterfaceError) as error:
                log.warning("The database does not answer (%s).", error)
        close_old_connections()

    def sign(self) -> None:
        """One sign of life."""
        found = workers.beat(self.row)
        if found is None:
            log.error("Another process has taken the name %s; start this worker again.", self.row.name)
        elif found.draining != self.draining:
            self.draining = found.draining
            self.on_drain(found.draining)
