"""A Redis that dies and comes back empty: workers keep their runs and take new ones, and nobody has to start them again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.installed.documents import rl
from tests.installed.processes import any_port, installed
from tests.installed.servers import RedisServer, own_redis
from tests.webapp.launch.conftest import FAKE
from webapp.demo.processes import Service

pytestmark = pytest.mark.redis


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with own_redis() as server:
        yield server


def test_a_worker_that_holds_a_run_outlives_its_broker(redis: RedisServer, tmp_path: Path) -> None:
    extra = {
        "UNSQUEEZE_BROKER_URL": redis.address,
        "UNSQUEEZE_TRAINER_COMMAND": f"{sys.executable} -S {FAKE} wait",
        "UNSQUEEZE_RESEND_SECONDS": "1",
    }
    with installed(tmp_path / "data", port=any_port(), extra=extra, start=("scheduler",)) as here:
        command = (sys.executable, "manage.py", "worker", "--slots", "2")
        worker = here.start_services([Service("worker", command)]).running["worker"]
        here.hand("people", roles={"ada@example.org": "owner"})
        first = here.hand("launch", document=rl())
        here.wait_for(first, "running")
        redis.kill()
        redis.start()
        second = here.hand("launch", document=rl())
        here.wait_for(second, "running", seconds=90)
        assert worker.poll() is None
        assert here.look(first)["attempt"] == 1
        for run in (first, second):
            here.hand("stop", run=run)
            here.wait_for(run, "stopped")
