"""A PostgreSQL cluster, a Redis server and a small disk of one's own: what may be stopped, filled and killed."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.installed.processes import HOST, any_port, wait_until


class Missing(RuntimeError):
    """This machine lacks a program or a right; the text says which."""


class Cluster:
    """A PostgreSQL server in a folder of its own, run by a user who is not root."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.programs, self.port = folder, programs, any_port()
        self.owner = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        folder.mkdir()
        if os.geteuid() == 0:
            shutil.chown(folder, self.owner, self.owner)
        self.run("initdb", "--auth", "trust", "--username", "unsqueeze", "--no-sync", "--pgdata", str(self.data))

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def address(self) -> str:
        return f"postgres://unsqueeze@{HOST}:{self.port}/postgres"

    @property
    def pids(self) -> list[int]:
        """The server's processes, the first one first."""
        first = int((self.data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return [first, *map(int, children)]

    def run(self, program: str, *arguments: str) -> None:
        command = [str(self.programs / program), *arguments]
        user = {"user": self.owner, "group": self.owner, "extra_groups": []} if os.geteuid() == 0 else {}
        subprocess.run(command, cwd=self.folder, check=True, stdout=subprocess.DEVNULL, **user)  # type: ignore[call-overload]

    def start(self) -> None:
        options = f"-p {self.port} -h {HOST} -k {self.folder} -c fsync=off"
        log = str(self.folder / "log")
        self.run("pg_ctl", "--pgdata", str(self.data), "--wait", "--log", log, "--options", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        """`immediate` is a crash, `fast` a restart as an administrator does it."""
        self.run("pg_ctl", "--pgdata", str(self.data), "--wait", "--mode", mode, "stop")


@contextmanager
def own_cluster() -> Iterator[Cluster]:
    """A started cluster. Raises Missing where PostgreSQL is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    program = found[-1] if found else shutil.which("initdb")
    if not program:
        raise Missing("PostgreSQL's initdb is not here; install the package postgresql")
    # Not below a folder which nobody but its owner may enter, as pytest's own is.
    with tempfile.TemporaryDirectory(prefix="unsqueeze-pg-") as folder:
        os.chmod(folder, 0o755)
        cluster = Cluster(Path(folder) / "cluster", Path(program).parent)
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()


class RedisServer:
    """A Redis that keeps nothing on disk: a restart loses every message."""

    def __init__(self, program: str) -> None:
        self.program, self.port = program, any_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def start(self) -> None:
        options = ("--bind", HOST, "--port", str(self.port), "--save", "", "--appendonly", "no", "--dir", "/tmp")
        self.process = subprocess.Popen([self.program, *options], stdout=subprocess.DEVNULL, start_new_session=True)
        wait_until(self.answers, seconds=30)

    def answers(self) -> bool:
        import redis

        try:
            return bool(redis.Redis(port=self.port).ping())
        except redis.ConnectionError:
            return False

    def flush(self) -> None:
        import redis

        redis.Redis(port=self.port).flushall()

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def own_redis() -> Iterator[RedisServer]:
    """A started server. Raises Missing where Redis is not installed."""
    program = shutil.which("redis-server")
    if not program:
        raise Missing("redis-server is not here; install the package redis-server")
    server = RedisServer(program)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own, mounted at a new folder; `size` as mount takes it. Raises Missing where it cannot be."""
    if os.geteuid() != 0:
        raise Missing("mounting a small file system needs root")
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "unsqueeze-test", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        folder.rmdir()
        raise Missing(f"no small file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        # Whoever is just leaving may still hold a file of it.
        gone = wait_until(lambda: not subprocess.run(["umount", str(folder)]).returncode, seconds=10, fail=False)
        if not gone:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
