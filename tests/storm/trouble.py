"""Kinds of trouble, a class each: `begin` does it and says to whom, `end` takes it back or repairs what an administrator
would. A trouble that finds no victim says so and does nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from tests.installed.processes import belongs
from tests.storm.clocks import JUMPS
from tests.storm.installation import WORKERS, Weathered

T = TypeVar("T")
NOBODY = "nobody was there"


class Trouble:
    """`lot` in [0, 1) chooses the victim. `lasts` is whether time passes between `begin` and `end`."""

    name: ClassVar[str]
    lasts: ClassVar[bool] = True

    def __init__(self, there: Weathered, lot: float) -> None:
        self.there, self.lot = there, lot

    @classmethod
    def possible(cls, there: Weathered) -> bool:
        """Whether this installation can have it."""
        return True

    def begin(self) -> str:
        raise NotImplementedError

    def end(self) -> None:
        """Services that are gone are started again by the storm itself."""

    def one_of(self, choices: Sequence[T]) -> T | None:
        return choices[int(self.lot * len(choices))] if choices else None

    def signal_group(self, pid: int, number: int) -> bool:
        """Whether there was such a process group of this installation."""
        if not belongs(pid, self.there.here.data):
            return False
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            return False
        return True

    def trainer(self) -> dict[str, Any] | None:
        """A run with a living trainer."""
        alive = [
            run for run in self.there.situation() if run["state"] in ("starting", "running", "stopping") and run["pid"]
        ]
        return self.one_of(alive)


class KillTrainer(Trouble):
    name, lasts = "kill-trainer", False

    def begin(self) -> str:
        run = self.trainer()
        if run is None or not self.signal_group(run["pid"], signal.SIGKILL):
            return NOBODY
        return f"{run['id']} at iteration {run['iteration']} of {run['total']}"


class PauseTrainer(Trouble):
    name = "pause-trainer"
    pid = 0

    def begin(self) -> str:
        run = self.trainer()
        if run is None or not self.signal_group(run["pid"], signal.SIGSTOP):
            return NOBODY
        self.pid = run["pid"]
        return f"{run['id']} at iteration {run['iteration']} of {run['total']}"

    def end(self) -> None:
        if self.pid:
            self.signal_group(self.pid, signal.SIGCONT)


class _Service(Trouble):
    services: ClassVar[tuple[str, ...]]

    def victim(self) -> str:
        found = self.one_of(self.services)
        assert found is not None
        return found


class KillWorker(_Service):
    name, services = "kill-worker", tuple(WORKERS)

    def begin(self) -> str:
        victim = self.victim()
        self.there.kill(victim)
        return victim


class KillScheduler(KillWorker):
    name, services = "kill-scheduler", ("scheduler",)


class KillWeb(KillWorker):
    name, services = "kill-web", ("web",)


class PauseWorker(_Service):
    """A long one outlasts the lease: the worker comes back to a run that is no longer its own."""

    name, services = "pause-worker", tuple(WORKERS)

    def begin(self) -> str:
        self.process = self.there.running[self.victim()]
        self.process.send_signal(signal.SIGSTOP)
        return self.victim()

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)


class PauseScheduler(PauseWorker):
    name, services = "pause-scheduler", ("scheduler",)


class RestartWorker(_Service):
    """As an administrator does it: SIGTERM, and the next one beside it at once."""

    name, lasts, services = "restart-worker", False, tuple(WORKERS)

    def begin(self) -> str:
        victim = self.victim()
        self.there.running.pop(victim).send_signal(signal.SIGTERM)
        return victim


class PowerFailure(Trouble):
    """Everything of the host at once, trainers too."""

    name = "power-failure"

    def begin(self) -> str:
        runs = [run for run in self.there.situation() if run["pid"]]
        for name in list(self.there.running):
            self.there.kill(name)
        hit = [run["id"] for run in runs if self.signal_group(run["pid"], signal.SIGKILL)]
        return f"every service and {len(hit)} trainers"


class FullDisk(Trouble):
    """Of the data folder, with SQLite the database's too. Not of PostgreSQL's own."""

    name = "full-disk"

    @classmethod
    def possible(cls, there: Weathered) -> bool:
        return there.disk is not None

    def begin(self) -> str:
        assert self.there.disk is not None
        free = shutil.disk_usage(self.there.disk).free
        with contextlib.suppress(OSError), (self.there.disk / "ballast").open("wb", buffering=0) as file:
            # Trainers write meanwhile, so the rest is taken in small pieces until nothing is left.
            os.posix_fallocate(file.fileno(), 0, max(1, free - (1 << 20)))
            file.seek(0, os.SEEK_END)
            while True:
                file.write(bytes(4096))
        left = shutil.disk_usage(self.there.disk).free
        return f"{left} bytes left"

    def end(self) -> None:
        assert self.there.disk is not None
        (self.there.disk / "ballast").unlink(missing_ok=True)


class JumpClock(Trouble):
    """The clock of one process, or of all, jumps by an hour or by ten years, either way, and comes back."""

    name = "jump-clock"

    def begin(self) -> str:
        clocks = self.there.clocks.files
        choice = self.one_of([(names, jump) for names in ([*clocks], *([name] for name in clocks)) for jump in JUMPS])
        assert choice is not None
        names, jump = choice
        for name in names:
            self.there.clocks.set(name, jump)
        return f"{', '.join(names)} by {jump / 3600:+.0f} h"

    def end(self) -> None:
        for name in self.there.clocks.files:
            self.there.clocks.set(name, 0.0)


class LoseMessages(Trouble):
    """The broker forgets everything."""

    name, lasts = "lose-messages", False

    def begin(self) -> str:
        if self.there.redis is not None:
            self.there.redis.flush()
            return "all keys"
        lost = 0
        for path in self.there.messages.iterdir():
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
                lost += 1
        return f"{lost} messages"


class DeliverAgain(Trouble):
    """Every message of a queued or running attempt once more."""

    name, lasts = "deliver-again", False

    def begin(self) -> str:
        return f"{self.there.ask('deliver_again')} messages"


class PersonStops(Trouble):
    """A person stops a run, and goes on with it later."""

    name, lasts = "person-stops", False

    def begin(self) -> str:
        run = self.trainer()
        if run is None:
            return NOBODY
        try:
            self.there.ask("stop", run=run["id"])
        except RuntimeError as error:  # it is over meanwhile
            return str(error)
        return f"{run['id']} at iteration {run['iteration']} of {run['total']}"


class _OfPostgres(Trouble):
    @classmethod
    def possible(cls, there: Weathered) -> bool:
        return there.cluster is not None

    @property
    def cluster(self) -> Any:
        return self.there.cluster


class CrashPostgres(_OfPostgres):
    name = "crash-postgres"
    mode = "immediate"

    def begin(self) -> str:
        self.cluster.stop(self.mode)
        return self.mode

    def end(self) -> None:
        self.cluster.start()


class RestartPostgres(CrashPostgres):
    name = "restart-postgres"
    mode = "fast"


class PausePostgres(_OfPostgres):
    """It keeps its connections and answers nothing."""

    name = "pause-postgres"
    pids: Sequence[int] = ()

    def begin(self) -> str:
        self.pids = self.cluster.pids
        self._signal(signal.SIGSTOP)
        return f"{len(self.pids)} processes"

    def end(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class _OfRedis(Trouble):
    @classmethod
    def possible(cls, there: Weathered) -> bool:
        return there.redis is not None

    @property
    def redis(self) -> Any:
        return self.there.redis


class KillRedis(_OfRedis):
    name = "kill-redis"

    def begin(self) -> str:
        self.redis.kill()
        return "with all its messages"

    def end(self) -> None:
        self.redis.start()


class PauseRedis(_OfRedis):
    name = "pause-redis"

    def begin(self) -> str:
        self.redis.process.send_signal(signal.SIGSTOP)
        return "it answers nothing"

    def end(self) -> None:
        self.redis.process.send_signal(signal.SIGCONT)


class _OfBucket(Trouble):
    @classmethod
    def possible(cls, there: Weathered) -> bool:
        return there.bucket is not None

    @property
    def bucket(self) -> Any:
        return self.there.bucket


class StopBucket(_OfBucket):
    """Nobody listens."""

    name = "stop-bucket"

    def begin(self) -> str:
        self.bucket.stop()
        return "with everything in it"

    def end(self) -> None:
        self.bucket.start()


class FailBucket(_OfBucket):
    """Every request is refused, and then the first downloads break off."""

    name = "fail-bucket"

    def begin(self) -> str:
        self.bucket.faults.refuse = 1_000_000
        return "every request"

    def end(self) -> None:
        self.bucket.faults.refuse, self.bucket.faults.cut = 0, [1000, 10, 0]


KINDS: dict[str, type[Trouble]] = {
    one.name: one
    for one in (
        KillTrainer, PauseTrainer, KillWorker, PauseWorker, RestartWorker, KillScheduler, PauseScheduler, KillWeb,
        PowerFailure, FullDisk, JumpClock, LoseMessages, DeliverAgain, PersonStops, CrashPostgres, RestartPostgres, PausePostgres,
        KillRedis, PauseRedis, StopBucket, FailBucket,
    )
}  # fmt: skip
