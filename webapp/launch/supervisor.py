"""Watches over one trainer process: starts it, reads its events into the database, stops it, says how it ended.

The supervisor is thin: it holds no transaction between batches and no torch. When the database is away it waits, and
the events wait in their file. When it dies itself, the parent pipe closes and the trainer saves and leaves; the
scheduler's reaper does the rest.
"""

import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, TypeVar

from django.conf import settings
from django.db import InterfaceError, OperationalError, close_old_connections

from trainer.contract.known import KnownEvaluation
from trainer.contract.redaction import NOTHING, Redactor
from webapp.launch import inputs
from webapp.launch.attempt_files import Uploads, at_work
from webapp.launch.endings import end
from webapp.launch.known import known_evaluations
from webapp.launch.outcome import ON_REQUEST, WORKER_LEAVES, Asked, Outcome, outcome_of
from webapp.launch.process import last_lines, start_trainer
from webapp.launch.secrets import given_to, scrub
from webapp.launch.shutdown import leaving
from webapp.launch.slots import ANYWHERE, Slot
from webapp.launch.tail import Tail
from webapp.metrics.selectors import largest
from webapp.runs import services as runs
from webapp.runs.copies import in_use
from webapp.runs.models import Run
from webapp.runs.selectors import last_state
from webapp.runs.states import RunState
from webapp.runs.storage import is_local
from webapp.teams.secret_services import SecretUnavailable

log = logging.getLogger(__name__)

TICK = 0.1
WATCH_EVERY = 0.5
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
STEP_TIME = "step_time"
T = TypeVar("T")


class Supervisor:
    """Runs one claimed attempt to its end; see the module.

    `slot` is where its trainer runs; `clock` and `sleep` are given by tests.
    """

    def __init__(
        self,
        held: runs.Claim,
        *,
        root: Path,
        slot: Slot = ANYWHERE,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Any] = time.sleep,
    ) -> None:
        self.held = held
        self.root = root
        self.slot = slot
        self.clock = clock
        self.sleep = sleep
        self.process: subprocess.Popen[bytes] | None = None
        self.pipe: IO[bytes] | None = None
        self.uploads: Uploads | None = None
        self.holding = ExitStack()
        self.redact: Redactor = NOTHING
        self.fenced = False
        self.killed = False
        self.asked: Asked | None = None
        self.asked_at = 0.0
        self.renewed_at = self.watched_at = clock()
        self.grace = float(settings.STOP_GRACE_SECONDS)
        self.beat_every = float(settings.LEASE_SECONDS) / runs.BEATS_PER_LEASE

    def run(self) -> Run | None:
        """To the end of the attempt. The run as it then stands, or None when someone else has taken it over."""
        try:
            run = self._patiently(lambda: Run.objects.get(pk=self.held.run_id))
            known = self._patiently(lambda: known_evaluations(run))
            try:
                self._start(run, known)
            except (OSError, SecretUnavailable) as error:
                return self._end(Outcome(RunState.FAILED, f"The trainer could not be started: {error}"), None)
            with at_work(self.held.run_id, self.held.number):
                self.uploads = Uploads(self.held.run_id, self.held.number, growing=not self.redact)
                self._watch(self._tail())
                return self._finish()
        except runs.ClaimLost as lost:
            log.warning("%s; its trainer is ended.", lost)
            return None
        finally:
            self._leave_nothing()

    def _ready(self, run: Run) -> list[str]:
        """The trainer's arguments about what it starts from, once that is on this host. Raises OSError."""
        wanted = self._patiently(lambda: inputs.inputs_of(run, self.held))
        if is_local():
            return inputs.prepare(run, wanted).arguments
        try:
            ready = self._beside(lambda: inputs.prepare(run, wanted))
        except inputs.NothingWhole as nothing:
            refused = nothing.refused
            self._patiently(lambda: inputs.tell_refused(self.held, refused))
            raise
        for uri in ready.brought:
            self.holding.enter_context(in_use(uri))
        if ready.refused:
            self._patiently(lambda: inputs.tell_refused(self.held, ready.refused))
        return ready.arguments

    def _beside(self, work: Callable[[], T]) -> T:
        """The result of work that may take long and needs no database, while the claim is renewed."""
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(work)
            while not future.done():
                self._renew()
                self.sleep(TICK)
            return future.result()

    def _store_files(self) -> str:
        """Waits until the attempt's files are stored; what to say when they are not in time."""
        assert self.uploads is not None
        self.uploads.finish()
        began = self.clock()
        while not self.uploads.done and self.clock() - began < settings.UPLOAD_PATIENCE_SECONDS:
            self._renew()
            self.sleep(TICK)
        if self.uploads.done:
            return ""
        last = self.uploads.last
        return (
            f" {len(last.left)} of its files are only on the worker {socket.gethostname()}, which stores them as soon as "
            f"it can: {last.error}"
        )

    def _start(self, run: Run, known: Sequence[KnownEvaluation]) -> None:
        """Starts the trainer with its inputs and its secrets. Raises OSError and SecretUnavailable."""
        source = self._ready(run)
        secrets = self._patiently(lambda: given_to(run))
        self.redact = Redactor(secrets)
        self.process, self.pipe = start_trainer(
            run, self.held, root=self.root, source=source, slot=self.slot, secrets=secrets, known=known
        )

    def _tail(self) -> Tail:
        return self._patiently(lambda: Tail(self.held, redact=self.redact))

    def _watch(self, tail: Tail) -> None:
        """Until the process has left and its file is read."""
        assert self.process is not None
        self._renew(force=True)
        while True:
            # Asked before reading: what it wrote before it left is then in the file.
            gone = self.process.poll() is not None
            moved = self._patiently(tail.step)
            self._renew()
            if gone and not moved:
                return
            if not gone:
                self._look_for_stop()
                self._end_overdue()
                if not moved:
                    self.sleep(TICK)

    def _renew(self, *, force: bool = False) -> None:
        if not force and self.clock() - self.renewed_at < self.beat_every:
            return
        pid = self.process.pid if self.process else None
        if not self._patiently(lambda: runs.renew(self.held, pid=pid)):
            raise runs.ClaimLost(f"attempt {self.held.number} of run {self.held.run_id} is no longer this worker's")
        self.renewed_at = self.clock()

    def _look_for_stop(self) -> None:
        if self.asked or self.clock() - self.watched_at < WATCH_EVERY:
            return
        self.watched_at = self.clock()
        if leaving.is_set():
            self._ask(WORKER_LEAVES)
        elif self._patiently(lambda: runs.stop_requested(self.held.run_id)):
            self._ask(ON_REQUEST)

    def _ask(self, asked: Asked) -> None:
        self.asked, self.asked_at = asked, self.clock()
        self._signal(signal.SIGTERM)

    def _end_overdue(self) -> None:
        waited = self.clock() - self.asked_at
        if self.asked and not self.killed and waited > self.grace and waited > self._patience():
            self.killed = True
            self._signal(signal.SIGKILL)

    def _patience(self) -> float:
        """At least the setting, and never less than twice the longest iteration so far: it may have just begun one."""
        return max(self.grace, 2.0 * self._patiently(lambda: largest(self.held.run_id, STEP_TIME) or 0.0))

    def _signal(self, number: signal.Signals) -> None:
        """To the whole group: the trainer may have children."""
        assert self.process is not None
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            log.info("The trainer of run %s has left already.", self.held.run_id)

    def _finish(self) -> Run | None:
        assert self.process is not None
        code = self.process.wait()
        scrub(self.held.run_id, self.held.number, self.redact)
        said = self._patiently(self._last_words)
        log_lines = last_lines(self.held.run_id, self.held.number)
        outcome = outcome_of(code, said=said, log=log_lines, asked=self.asked, killed=self.killed)
        if left := self._store_files():
            outcome = replace(outcome, message=outcome.message + left)
        return self._end(outcome, code)

    def _end(self, outcome: Outcome, code: int | None) -> Run:
        said = replace(outcome, message=self.redact.text(outcome.message))
        return self._patiently(lambda: end(self.held, said, exit_code=code))

    def _last_words(self) -> str:
        state, message = last_state(self.held.run_id, self.held.number)
        return message if state == "failed" else ""

    def _leave_nothing(self) -> None:
        """However this ends, no process of the group outlives its supervisor."""
        if self.process is not None:
            self._signal_quietly()
            self.process.wait()
        if self.uploads is not None:
            self.uploads.finish()
        self.holding.close()
        if self.pipe is not None:
            self.pipe.close()

    def _signal_quietly(self) -> None:
        assert self.process is not None
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return

    def _patiently(self, work: Callable[[], T]) -> T:
        """The result of a database call; a database that is away is asked again, more and more rarely.

        Meanwhile a stop that was asked for runs its course, because the trainer needs no database.
        """
        pause = FIRST_PAUSE
        while True:
            try:
                return work()
            except (OperationalError, InterfaceError) as error:
                log.warning(
                    "Run %s: the database does not answer (%s); trying again in %.1f s.", self.held.run_id, error, pause
                )
            close_old_connections()
            if leaving.is_set() and self.process is not None and not self.asked:
                self._ask(WORKER_LEAVES)
            if self.process is not None:
                self._end_overdue_without_database()
            self.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _end_overdue_without_database(self) -> None:
        if self.asked and not self.killed and self.clock() - self.asked_at > self.grace:
            self.killed = True
            self._signal(signal.SIGKILL)
