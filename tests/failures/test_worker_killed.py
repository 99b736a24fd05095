"""A worker that dies without a word: its trainer saves and leaves, the scheduler notices, and the run goes on later."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.installed.documents import SPS, rl
from tests.installed.processes import HELD, any_port, installed, wait_until

pytestmark = pytest.mark.slow


def test_a_killed_worker_costs_nothing_but_time(tmp_path: Path) -> None:
    document = rl(
        methods=SPS,
        budget={"iterations": 45},
        checkpoints={"every": 15},
        evaluation=rl()["evaluation"] | {"every": 20},
    )
    with installed(
        tmp_path / "data",
        port=any_port(),
        extra={"UNSQUEEZE_LEASE_SECONDS": "5", "UNSQUEEZE_RESUME_PAUSE": "0", **HELD},
        start=("worker", "scheduler"),
    ) as here:
        here.hand("people", roles={"ada@example.org": "owner"})
        whole = here.hand("launch", document=document)
        assert here.wait_for(whole)["state"] == "finished"

        run = here.hand("launch", document=document)
        here.hold(run, at=20)
        trainer = here.wait_for(run, "running", iteration=20)["pid"]
        worker = here.started[0].running["worker"]
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
        # The pipe to its parent has closed: the trainer saves its state and leaves by itself.
        wait_until(lambda: not Path(f"/proc/{trainer}").exists(), seconds=60)
        waiting = here.wait_for(run, "queued", seconds=120)
        assert waiting["message"].startswith("Resumed automatically, 1 of 3 without a new checkpoint. Saved and left")
        assert 20 <= waiting["iteration"] < 45

        here.release(run)
        here.start("worker")
        finished = here.wait_for(run)
        assert (finished["state"], finished["attempt"]) == ("finished", 2), finished
        assert finished["transitions"] == [
            "queued", "starting", "running", "stopped", "queued", "starting", "running", "finished"
        ]  # fmt: skip
        here.check_same(whole, run)


def test_a_worker_that_is_shut_down_passes_its_run_on(tmp_path: Path) -> None:
    document = rl(budget={"iterations": 30}, checkpoints={"every": 15})
    with installed(tmp_path / "data", port=any_port(), extra=HELD, start=("worker", "scheduler")) as here:
        here.hand("people", roles={"ada@example.org": "owner"})
        whole = here.hand("launch", document=document)
        assert here.wait_for(whole)["state"] == "finished"

        run = here.hand("launch", document=document)
        here.hold(run, at=20)
        here.wait_for(run, "running", iteration=20)
        worker = here.started[0].running["worker"]
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait(60) == 0
        waiting = here.look(run)
        assert (waiting["state"], waiting["attempt"]) == ("queued", 2)
        assert waiting["message"].startswith("Waits for another worker. Stopped, because its worker was shut down;")

        here.release(run)
        here.start("worker")
        finished = here.wait_for(run)
        assert (finished["state"], finished["attempt"]) == ("finished", 2), finished
        here.check_same(whole, run)
