"""A worker that dies without a word: its trainer saves and leaves, the scheduler notices, and the run goes on later."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.failures.conftest import SPS, rl
from tests.installed.processes import any_port, installed, wait_until

pytestmark = pytest.mark.slow


def test_a_killed_worker_costs_nothing_but_time(tmp_path: Path) -> None:
    document = rl(
        methods=SPS,
        budget={"iterations": 150},
        checkpoints={"every": 50},
        evaluation=rl()["evaluation"] | {"every": 40},
    )
    with installed(
        tmp_path / "data", port=any_port(), extra={"UNSQUEEZE_LEASE_SECONDS": "5"}, start=("worker", "scheduler")
    ) as here:
        here.hand("people", roles={"ada@example.org": "owner"})
        whole = here.hand("launch", document=document)
        assert here.wait_for(whole)["state"] == "finished"

        run = here.hand("launch", document=document)
        trainer = here.wait_for(run, "running", iteration=20)["pid"]
        worker = here.started[0].running["worker"]
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
        # The pipe to its parent has closed: the trainer saves its state and leaves by itself.
        wait_until(lambda: not Path(f"/proc/{trainer}").exists(), seconds=60)
        stopped = here.wait_for(run, "stopped", seconds=120)
        assert stopped["message"].startswith("Saved and left, because its worker went away.")
        assert 20 <= stopped["iteration"] < 150
        assert stopped["can_resume"]

        here.start("worker")
        here.hand("resume", run=run)
        finished = here.wait_for(run)
        assert (finished["state"], finished["attempt"]) == ("finished", 2), finished
        expected, found = here.hand("record", run=whole), here.hand("record", run=run)
        for part in expected:
            assert found[part] == expected[part], part
