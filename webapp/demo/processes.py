"""The processes of a small installation: web server, worker and scheduler, started and ended together."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from django.conf import settings

STOP_SECONDS = 90.0
FIRST_PORT = 8000
PORTS = 50


@dataclass(frozen=True)
class Service:
    """One process: what it is called in messages, and its command line."""

    name: str
    command: tuple[str, ...]


def services(*, host: str, port: int) -> list[Service]:
    """What a person needs for the web page and for running one run at a time."""
    python = sys.executable
    manage = (python, str(settings.BASE_DIR / "manage.py"))
    return [
        Service("web", (python, "-m", "uvicorn", "webapp.config.asgi:application", "--host", host, "--port", str(port),
                        "--lifespan", "off", "--log-level", "warning", "--timeout-graceful-shutdown", "1")),
        Service("worker", (*manage, "worker")),
        Service("scheduler", (*manage, "scheduler")),
    ]  # fmt: skip


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host: str) -> int:
    """The first free port from 8000 on."""
    for port in range(FIRST_PORT, FIRST_PORT + PORTS):
        if is_free(host, port):
            return port
    raise OSError(f"no free port from {FIRST_PORT} to {FIRST_PORT + PORTS - 1}; give one with --port")


class Installation:
    """Starts the services in their own process groups, notices when one ends, and leaves none behind."""

    def __init__(self, wanted: Sequence[Service], *, logs: Path) -> None:
        self.wanted = list(wanted)
        self.logs = logs
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._files: list[IO[bytes]] = []

    def __enter__(self) -> "Installation":
        self.logs.mkdir(parents=True, exist_ok=True)
        for service in self.wanted:
            log = (self.logs / f"{service.name}.log").open("ab")
            self._files.append(log)
            self.running[service.name] = subprocess.Popen(
                service.command, cwd=settings.BASE_DIR, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                start_new_session=True, env={**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def ended(self) -> str | None:
        """A sentence about a service that is gone, or None."""
        for name, process in self.running.items():
            code = process.poll()
            if code is not None:
                return f"The {name} ended with code {code}; its log is {self.logs / f'{name}.log'}."
        return None

    def wait_for(self, address: str, *, seconds: float = 60.0) -> None:
        """Until the web server answers. Raises RuntimeError when it does not, or when a service ends."""
        until = time.monotonic() + seconds
        while True:
            gone = self.ended()
            if gone or time.monotonic() > until:
                raise RuntimeError(gone or f"{address} did not answer within {seconds:.0f} s.")
            try:
                with urllib.request.urlopen(f"{address}/healthz", timeout=2):
                    return
            except OSError:
                time.sleep(0.1)

    def stop(self) -> None:
        """Asks all to leave; the worker lets its trainer save first. Whoever does not leave in time is killed."""
        for process in self.running.values():
            _signal(process, signal.SIGTERM)
        until = time.monotonic() + STOP_SECONDS
        for process in self.running.values():
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)
                process.wait()
        for file in self._files:
            file.close()
        self.running.clear()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return
