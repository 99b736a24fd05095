"""A checker in a process of its own: what an answer makes it do, hang, crash or fill the memory, costs that answer only.

The process reads requests and writes replies, one JSON line each, and says "ready" first. A request may take so many
CPU seconds, not wall seconds, so that a busy machine decides no reward. Signals measure them, in the process itself,
where the checker runs in the main thread; whoever asks may be any thread.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CPU_SECONDS = 5.0
WALL_SECONDS = 300.0
MEMORY = 4 << 30
ROOT = str(Path(__file__).resolve().parents[2])


RAISED, LATE, CRASHED = "raised", "out of time", "crashed"


class CheckerLost(Exception):
    """The process gave no reply; the text says why: `LATE` or `CRASHED`."""


def failed(judged_by: str) -> bool:
    """Whether what judged a sample, "<checker>: <what it said of itself>", is a checker that failed on it."""
    return judged_by.rpartition(": ")[2] in (RAISED, LATE, CRASHED)


class Worker:
    """The process of a module that calls `serve`. It starts when first asked, and again after one ended. Safe to share
    between threads."""

    def __init__(self, module: str, *, seconds: float = CPU_SECONDS, patience: float = WALL_SECONDS) -> None:
        self.module, self.seconds, self.patience = module, seconds, patience
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def ask(self, request: Any) -> Any:
        """The reply to a JSON value. Raises CheckerLost."""
        with self._lock:
            try:
                process = self._process or self._started()
                assert process.stdin is not None
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
                return json.loads(self._line(process))
            except (OSError, ValueError) as error:
                raise CheckerLost(self._ended()) from error

    def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def _ended(self) -> str:
        process = self._process
        code = None
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout=1.0)
        self.close()
        return LATE if code in (None, -signal.SIGPROF) else CRASHED

    def _started(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", self.module, str(self.seconds)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self._process = process
        if self._line(process) != b"ready":
            raise OSError(f"{self.module} did not start")
        return process

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        """One line of the process. Raises OSError at its end, or when it sleeps for ever."""
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        until, found = time.monotonic() + self.patience, b""
        while not found.endswith(b"\n"):
            ready, _, _ = select.select([descriptor], [], [], max(0.0, until - time.monotonic()))
            part = os.read(descriptor, 65536) if ready else b""
            if not part:
                raise OSError("no reply")
            found += part
        return found.strip()


def serve(reply: Callable[[Any], Any]) -> None:
    """The process's side: replies until the other side closes. Its argument is the CPU seconds a request may take."""
    out = sys.stdout
    sys.stdout = sys.stderr
    seconds = float(sys.argv[1])
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        said = reply(request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(said), file=out, flush=True)


def limit_memory() -> None:
    """To be called before anything large is imported."""
    import resource

    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
