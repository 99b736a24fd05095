"""The installation of a team: PostgreSQL and Redis, also when the database goes away in the middle of a run.

TEST_DATABASE_URL says where to find PostgreSQL, in which every test makes a database of its own; the restart is done to a
cluster of the test's own, and each Redis is one of its own too.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.installed.documents import SPS, rl
from tests.installed.processes import ROOT, Installed, any_port, installed, wait_until
from tests.installed.servers import Cluster, own_cluster, own_redis
from webapp.demo.processes import Service

DATABASE = os.environ.get("TEST_DATABASE_URL", "postgres://postgres@127.0.0.1:5432/postgres")


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
    """The address of an empty Redis."""
    with own_redis() as server:
        yield server.address


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


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with own_cluster() as cluster:
        yield cluster


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
        here.check_same(whole, run)
        assert here.started[0].ended() is None


def taken_up(here: Installed) -> int:
    """How many messages found an attempt that a worker had already."""
    logs = (file.read_text(errors="replace") for file in (here.data / "logs").glob("*.log"))
    return sum(log.count("is not to be started: it has a worker") for log in logs)


@pytest.mark.redis
def test_messages_that_vanish_or_come_twice_cost_nothing(broker: str, tmp_path: Path) -> None:
    import redis

    extra = {
        "UNSQUEEZE_BROKER_URL": broker,
        "UNSQUEEZE_BROKER_VISIBILITY": "2",
        "UNSQUEEZE_RESEND_SECONDS": "2",
        "UNSQUEEZE_LOG_LEVEL": "INFO",
    }
    with installed(tmp_path / "data", port=any_port(), extra=extra, start=("scheduler",)) as here:
        here.hand("people", roles={"ada@example.org": "owner"})
        client = redis.Redis.from_url(broker)
        lost = here.hand("launch", document=rl(budget={"iterations": 6}))
        assert client.llen("default") >= 1
        client.flushdb()
        manage = (sys.executable, str(ROOT / "manage.py"))
        here.start_services([Service("worker", (*manage, "worker", "--slots", "2"))])
        assert here.wait_for(lost)["attempt"] == 1

        # Its message is not acknowledged for longer than Redis waits: it is delivered again, beside the running trainer.
        before = taken_up(here)
        run = here.hand("launch", document=rl(budget={"iterations": 100_000}))
        pid = here.wait_for(run, "running", iteration=1)["pid"]
        wait_until(lambda: taken_up(here) > before, seconds=120)
        iteration = here.look(run)["iteration"]
        here.wait_for(run, "running", iteration=iteration + 2)
        here.hand("stop", run=run)
        stopped = here.wait_for(run, "stopped")
        assert (stopped["attempt"], stopped["pid"]) == (1, pid)
        assert stopped["transitions"] == ["queued", "starting", "running", "stopping", "stopped"]
        client.close()
