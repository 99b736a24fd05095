"""An installation for tests: real web server, worker and scheduler with a data folder of their own.

The environment is made from nothing of the test's own `UNSQUEEZE_…` variables. Whatever belongs to the installation
carries its data folder in its environment, its working folder or its command line, trainers and browsers too: so
`left_over` finds what outlives it.
"""

from __future__ import annotations

import atexit
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from tests.installed import held
from webapp.demo.processes import Installation, Service, services

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
OVER = {"finished", "failed", "cancelled", "stopped", "lost"}
HELD = {"UNSQUEEZE_TRAINER_COMMAND": " ".join(held.COMMAND)}
# Generous: the machine of the tests may have other work. Nothing waits longer than it must.
PATIENCE = 300.0


def environment(data: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """What the installation's processes see. Trainers are started with this Python, as everything else is."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UNSQUEEZE_", "DJANGO_"))}
    return kept | {
        "DJANGO_SETTINGS_MODULE": "webapp.config.settings",
        "UNSQUEEZE_DATA": str(data),
        "UNSQUEEZE_LOG_LEVEL": "WARNING",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        **(extra or {}),
    }


def left_over(data: Path) -> list[str]:
    """Processes, zombies apart, that still belong to the data folder: "pid command line"."""
    pids = (int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit())
    return [line for pid in pids if pid != os.getpid() and (line := belongs(pid, data))]


def belongs(pid: int, data: Path) -> str:
    """ "pid command line" of a process that belongs to the data folder, else an empty text."""
    folder = Path("/proc") / str(pid)
    try:
        told = [(folder / name).read_bytes() for name in ("environ", "cmdline")]
        told.append(os.readlink(folder / "cwd").encode())
    except OSError:  # it is gone, a zombie, or someone else's
        return ""
    if not any(str(data).encode() in one for one in told):
        return ""
    return f"{pid} {told[1].replace(bytes(1), b' ').decode(errors='replace')}"


def gone(data: Path, *, seconds: float = 15.0) -> list[str]:
    """What is left over after waiting for those that are just leaving."""
    wait_until(lambda: not left_over(data), seconds=seconds, fail=False)
    return left_over(data)


def wait_until(true: Callable[[], Any], *, seconds: float = PATIENCE, pause: float = 0.1, fail: bool = True) -> Any:
    """The first true value. Raises AssertionError when there is none in time, unless `fail` is False."""
    until = time.monotonic() + seconds
    while not (value := true()):
        if time.monotonic() > until:
            if fail:
                raise AssertionError(f"not within {seconds:.0f} s")
            return value
        time.sleep(pause)
    return value


class Hand:
    """Calls the actions of `tests.installed.hand` in a process of their own."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.installed.hand"],
            cwd=ROOT, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip

    def __call__(self, name: str, **arguments: Any) -> Any:
        """The action's result. Raises RuntimeError with the error's text."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([name, arguments]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the hand's process has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


class Installed:
    """A running installation. `address` is of the web server, `hand` acts without it."""

    def __init__(self, data: Path, port: int, env: dict[str, str], hand: Hand) -> None:
        self.data, self.port, self.env, self.hand = data, port, env, hand
        self.started: list[Installation] = []

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def files(self) -> Path:
        return self.data / "files"

    def start(self, *names: str) -> Installation:
        """Starts some of the services (web, worker, scheduler)."""
        return self.start_services([s for s in services(host=HOST, port=self.port) if s.name in names])

    def start_services(self, wanted: Sequence[Service]) -> Installation:
        """Starts services with command lines of one's own."""
        installation = Installation(wanted, logs=self.data / "logs")
        with mock.patch.dict(os.environ, self.env, clear=True):
            installation.__enter__()
        self.started.append(installation)
        return installation

    def hold(self, run: str, *, at: int) -> None:
        """The run's trainer, if it is `tests.installed.held`, waits at the iteration until `release`."""
        held.hold(self.files / "runs" / run, at=at)

    def release(self, run: str) -> None:
        held.release(self.files / "runs" / run)

    def stop(self) -> None:
        for installation in reversed(self.started):
            installation.stop()
        self.hand.close()

    def look(self, run: str) -> dict[str, Any]:
        """The run as it stands; see `tests.installed.hand.look`."""
        found: dict[str, Any] = self.hand("look", run=run)
        return found

    def wait_for(self, run: str, *states: str, iteration: int = 0, seconds: float = PATIENCE) -> dict[str, Any]:
        """Until the run is in one of the states (by default any that is over) and has reached the iteration."""
        wanted = set(states) or OVER
        until = time.monotonic() + seconds
        while True:
            found = self.look(run)
            if found["state"] in wanted and found["iteration"] >= iteration:
                return found
            over = found["state"] in OVER and found["state"] not in wanted
            if over or time.monotonic() > until:
                raise AssertionError(
                    f"expected {sorted(wanted)} at iteration {iteration}, found {found}\n{self.logs()}"
                )
            time.sleep(0.1)

    def check_same(self, whole: str, run: str) -> None:
        """That two runs left the same: every series, axis, evaluation, rollout and checkpoint, bit for bit."""
        expected, found = self.hand("record", run=whole), self.hand("record", run=run)
        for part in expected:
            assert found[part] == expected[part], part

    def logs(self) -> str:
        """The ends of the services' logs, for a failure's text."""
        files = sorted((self.data / "logs").glob("*.log"))
        return "\n".join(f"--- {file.name}\n{file.read_text(errors='replace')[-3000:]}" for file in files)


@contextmanager
def installed(
    data: Path,
    *,
    port: int,
    extra: Mapping[str, str] | None = None,
    start: Sequence[str] = ("web", "worker", "scheduler"),
) -> Iterator[Installed]:
    """A fresh installation in the folder; afterwards no process of it is left, which is asserted."""
    data.mkdir(parents=True, exist_ok=True)
    env = environment(data, extra)
    fresh = "UNSQUEEZE_DATABASE_URL" not in env and not (data / "db.sqlite3").exists()
    # A new database is a copy of one that was migrated, any other one is migrated.
    without = () if fresh else ("db.sqlite3*",)
    shutil.copytree(_prepared(), data, ignore=shutil.ignore_patterns("secret*", *without), dirs_exist_ok=True)
    if not fresh:
        _manage(env, "migrate")
    found = Installed(data, port, env, Hand(env))
    try:
        if start:
            first = found.start(*start)
            if "web" in start:
                first.wait_for(found.address, seconds=PATIENCE)
        yield found
    finally:
        found.stop()
        left = gone(data)
        for line in left:
            os.kill(int(line.split()[0]), 9)
    assert not left, f"processes outlived their installation: {left}"


@cache
def _prepared() -> Path:
    """A data folder as `migrate` and `collectstatic` leave it, made once by each process that tests."""
    folder = Path(tempfile.mkdtemp(prefix="unsqueeze-prepared-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    env = environment(folder)
    for command in ("migrate", "collectstatic"):
        _manage(env, command)
    return folder


def _manage(env: Mapping[str, str], command: str) -> None:
    arguments = [sys.executable, "manage.py", command, "--no-input", "--verbosity", "0"]
    subprocess.run(arguments, cwd=ROOT, env=dict(env), check=True)


# Below those that the kernel gives to whoever connects: nobody takes one between its choice and its use.
PORTS = range(20_000, 32_000)


def any_port() -> int:
    """A port that is free now."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
