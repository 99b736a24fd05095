"""The installation that the storm hits: two workers, a scheduler and a web server on a small disk of their own, with
SQLite and files, or with a PostgreSQL cluster, a Redis and a bucket of their own. Each has a clock of its own.

Services are watched as an init system would do it: whoever is gone is started again.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.installed.processes import HOST, Installed, any_port, installed, left_over, wait_until
from tests.installed.servers import Cluster, Missing, RedisServer, own_cluster, own_redis, small_disk
from tests.storm.clocks import Clocks
from tests.webapp.bucket import Bucket, running_bucket
from webapp.demo.processes import Service, services

DISK = "768m"
WORKERS = {"north": 2, "south": 1}
"""Slots by worker."""
TRAINERS = "trainers"
"""The name of the one clock of all trainers."""
ADA = "ada@example.org"
PERIODS = {
    "UNSQUEEZE_LEASE_SECONDS": "6",
    "UNSQUEEZE_RESUME_PAUSE": "1",
    "UNSQUEEZE_RESEND_SECONDS": "3",
    "UNSQUEEZE_STOP_GRACE": "20",
}
PATIENCE = 120.0


class Weathered:
    """The installation's processes by name, and its servers where it has its own."""

    def __init__(
        self,
        here: Installed,
        clocks: Clocks,
        *,
        disk: Path | None,
        cluster: Cluster | None,
        redis: RedisServer | None,
        bucket: Bucket | None,
    ) -> None:
        self.here, self.clocks, self.disk = here, clocks, disk
        self.cluster, self.redis, self.bucket = cluster, redis, bucket
        self.wanted = {one.name: one for one in _services(here.port, clocks)}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.left_by_themselves: list[tuple[str, int]] = []

    @property
    def messages(self) -> Path:
        """Where the messages are when there is no Redis."""
        return self.here.data / "broker" / "messages"

    def ask(self, action: str, **arguments: Any) -> Any:
        """An action of `tests.storm.hand`. A database that is just coming back is asked again."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return self.here.hand(f"tests.storm.hand.{action}", **arguments)
            except RuntimeError as error:
                if "OperationalError" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.5)

    def situation(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("situation")
        return found

    def start(self, name: str) -> None:
        self.running[name] = self.here.start_services([self.wanted[name]]).running[name]

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def start_missing(self) -> None:
        """Every service runs again; one that nobody killed is noted."""
        for name in self.wanted:
            process = self.running.get(name)
            if process is not None and (code := process.poll()) is not None:
                self.left_by_themselves.append((name, code))
                process = None
            if process is None:
                self.start(name)

    def wait_for_web(self) -> None:
        """Until the web server answers; restarts nothing."""
        wait_until(self._answers, seconds=PATIENCE, pause=0.2)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.here.address}/healthz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def strangers(self) -> list[str]:
        """Processes of the installation that are neither its services nor the test's own: trainers."""
        own = {str(process.pid) for process in self.running.values()} | {str(self.here.hand.process.pid)}
        return [line for line in left_over(self.here.data) if line.split()[0] not in own]


def _services(port: int, clocks: Clocks) -> Iterator[Service]:
    for service in services(host=HOST, port=port):
        if service.name != "worker":
            yield Service(service.name, clocks.command(service.name, service.command))
            continue
        for name, slots in WORKERS.items():
            command = clocks.command(name, service.command)
            yield Service(name, (*command, "--name", name, "--slots", str(slots)))


@contextmanager
def weathered(folder: Path, kind: str, *, files: str = "folder") -> Iterator[Weathered]:
    """A started installation in the folder, of kind "sqlite" or "postgres", its files in a "folder" or a "bucket";
    afterwards nothing of it runs.

    Where no small disk can be mounted it lives in the folder itself, and its disk cannot be filled.
    """
    with ExitStack() as stack:
        cluster = redis = bucket = disk = None
        clocks = Clocks(folder / "clocks", [*WORKERS, "scheduler", "web", TRAINERS])
        trainer = clocks.command(TRAINERS, (sys.executable, "-m", "trainer"))
        extra = PERIODS | {"UNSQUEEZE_TRAINER_COMMAND": " ".join(trainer)}
        if kind == "postgres":
            cluster, redis = stack.enter_context(own_cluster()), stack.enter_context(own_redis())
            extra |= {"UNSQUEEZE_DATABASE_URL": cluster.address, "UNSQUEEZE_BROKER_URL": redis.address}
        if files == "bucket":
            bucket = stack.enter_context(running_bucket("storm", "files"))
            extra |= {
                "UNSQUEEZE_STORAGE_URL": "s3://storm/files",
                "UNSQUEEZE_S3_ENDPOINT_URL": bucket.options["endpoint_url"],
                "UNSQUEEZE_S3_REGION": bucket.options["region_name"],
                "UNSQUEEZE_S3_ACCESS_KEY_ID": bucket.options["access_key"],
                "UNSQUEEZE_S3_SECRET_ACCESS_KEY": bucket.options["secret_key"],
            }
        try:
            disk = stack.enter_context(small_disk(folder / "disk", DISK))
        except Missing as missing:
            print(f"{missing}: no full disk in this storm", file=sys.stderr)
        here = stack.enter_context(installed((disk or folder) / "data", port=any_port(), extra=extra, start=()))
        found = Weathered(here, clocks, disk=disk, cluster=cluster, redis=redis, bucket=bucket)
        found.start_missing()
        found.wait_for_web()
        here.hand("people", roles={ADA: "owner"})
        yield found
