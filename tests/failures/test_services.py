"""The installation of a team: PostgreSQL and Redis, also when the database goes away in the middle of a run.

TEST_DATABASE_URL and TEST_REDIS_URL say where to find the servers. Every test makes a database of its own; the restart
is done to a PostgreSQL cluster of the test's own.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.failures.conftest import SPS, rl
from tests.installed.processes import HOST, any_port, installed

DATABASE = os.environ.get("TEST_DATABASE_URL", "postgres://postgres@127.0.0.1:5432/postgres")
REDIS = os.environ.get("TEST_REDIS_URL", "redis://127.0.0.1:6379/9")


@pytest.fixture
def database() -> Iterator[str]:
    """The address of an empty database on the server of TEST_DATABASE_URL; it is dropped afterwards."""
    import psycopg

    name = f"unsqueeze_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(DATABASE, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield DATABASE.rpartition("/")[0] + f"/{name}"
    with psycopg.connect(DATABASE, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def broker() -> Iterator[str]:
    """The address of the Redis database of TEST_REDIS_URL, which must be empty, and is emptied afterwards."""
    import redis

    client = redis.Redis.from_url(REDIS)
    assert client.dbsize() == 0, f"{REDIS} holds {client.dbsize()} keys; name an empty database in TEST_REDIS_URL"
    yield REDIS
    client.flushdb()
    client.close()


@pytest.mark.postgres
@pytest.mark.redis
def test_a_run_goes_from_launch_to_its_end_on_postgresql_and_redis(database: str, broker: str, tmp_path: Path) -> None:
    extra = {"UNSQUEEZE_DATABASE_URL": database, "UNSQUEEZE_BROKER_URL": broker}
    with installed(tmp_path / "data", port=any_port(), extra=extra) as here:
        here.hand("people", roles={"ada@example.org": "owner"})
        run = here.hand("launch", document=rl(methods=SPS))
        finished = here.wait_for(run)
        assert finished["state"] == "finished", finished
        assert finished["transitions"] == ["queued", "starting", "running", "finished"]
        record = here.hand("record", run=run)
        assert record["series"]["reward"][0] == list(range(1, 19))
        assert [row[:2] for row in record["evaluations"]] == [
            [0, "validation"], [6, "validation"], [12, "validation"], [18, "test"], [18, "validation"],
        ]  # fmt: skip
        assert not (tmp_path / "data" / "db.sqlite3").exists()


class Cluster:
    """A PostgreSQL server of the test's own, in a temporary folder, run by a user who is not root."""

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

    def run(self, program: str, *arguments: str) -> None:
        command = [str(self.programs / program), *arguments]
        user = {"user": self.owner, "group": self.owner, "extra_groups": []} if os.geteuid() == 0 else {}
        subprocess.run(command, cwd=self.folder, check=True, stdout=subprocess.DEVNULL, **user)  # type: ignore[call-overload]

    def start(self) -> None:
        options = f"-p {self.port} -h {HOST} -k {self.folder} -c fsync=off"
        log = str(self.folder / "log")
        self.run("pg_ctl", "--pgdata", str(self.data), "--wait", "--log", log, "--options", options, "start")

    def stop(self) -> None:
        self.run("pg_ctl", "--pgdata", str(self.data), "--wait", "--mode", "immediate", "stop")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    import tempfile

    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    program = found[-1] if found else shutil.which("initdb")
    if not program:
        pytest.fail("PostgreSQL's initdb is not here; install the package postgresql")
    # Not below pytest's own folder, which nobody but its owner may enter.
    with tempfile.TemporaryDirectory(prefix="unsqueeze-pg-") as folder:
        os.chmod(folder, 0o755)
        cluster = Cluster(Path(folder) / "cluster", Path(program).parent)
        cluster.start()
        yield cluster
        cluster.stop()


@pytest.mark.postgres
def test_a_database_that_restarts_during_a_run_costs_nothing(cluster: Cluster, tmp_path: Path) -> None:
    document = rl(budget={"iterations": 150}, checkpoints={"every": 50})
    extra = {"UNSQUEEZE_DATABASE_URL": cluster.address}
    with installed(tmp_path / "data", port=any_port(), extra=extra) as here:
        here.hand("people", roles={"ada@example.org": "owner"})
        whole = here.hand("launch", document=document)
        assert here.wait_for(whole)["state"] == "finished"
        run = here.hand("launch", document=document)
        here.wait_for(run, "running", iteration=10)
        cluster.stop()
        time.sleep(3)  # the time that the server is away, during which the trainer goes on
        cluster.start()
        finished = here.wait_for(run)
        assert (finished["state"], finished["attempt"]) == ("finished", 1), finished
        expected, found = here.hand("record", run=whole), here.hand("record", run=run)
        for part in expected:
            assert found[part] == expected[part], part
        assert here.started[0].ended() is None
