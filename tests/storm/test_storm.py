"""A short storm, so that every change meets one; `make storm` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storm.installation import weathered
from tests.storm.plan import plan
from tests.storm.storm import Storm, summary

SEED, PACE = 3, 0.2


def survive(folder: Path, kind: str, files: str, *troubles: str) -> None:
    with weathered(folder, kind, files=files) as there:
        storm = Storm(there, iterations=12, kinds=("sps", "sft"), in_flight=2, aim_seconds=3.0)
        storm.calm()
        storm.weather(plan(SEED, len(troubles), troubles, pace=PACE))
        storm.arrive()
    assert not storm.tally.faults, summary(storm.tally, 0.0)
    assert sum(storm.tally.troubles.values()) >= len(troubles) - 1, "hardly anything happened"
    assert storm.tally.passed >= 4


@pytest.mark.slow
def test_runs_come_through_a_short_storm_on_sqlite(tmp_path: Path) -> None:
    troubles = ("kill-trainer", "power-failure", "pause-worker", "jump-clock", "lose-messages", "full-disk")
    survive(tmp_path, "sqlite", "folder", *troubles)


@pytest.mark.postgres
@pytest.mark.redis
def test_runs_come_through_a_short_storm_on_postgresql_redis_and_a_bucket(tmp_path: Path) -> None:
    troubles = ("crash-postgres", "kill-redis", "stop-bucket", "kill-worker", "kill-web")
    survive(tmp_path, "postgres", "bucket", *troubles)
