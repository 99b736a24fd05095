"""A worker and its trainer that sleep through their replacement, and wake up beside it, can do no harm."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.installed.documents import rl
from tests.installed.processes import HELD, ROOT, any_port, installed, wait_until
from webapp.demo.processes import Service

pytestmark = pytest.mark.slow


def worker(name: str) -> Service:
    return Service(name, (sys.executable, str(ROOT / "manage.py"), "worker", "--name", name))


def state_of(pid: int) -> str:
    """The kernel's letter for the process: T stopped, Z left and not collected; "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def test_a_worker_and_a_trainer_that_wake_up_after_their_replacement_change_nothing(tmp_path: Path) -> None:
    document = rl(budget={"iterations": 30}, checkpoints={"every": 6})
    extra = {"UNSQUEEZE_LEASE_SECONDS": "5", "UNSQUEEZE_RESUME_PAUSE": "0", **HELD}
    with installed(tmp_path / "data", port=any_port(), extra=extra, start=("scheduler",)) as here:
        here.hand("people", roles={"ada@example.org": "owner"})
        old = here.start_services([worker("one")]).running["one"]
        whole = here.hand("launch", document=document)
        assert here.wait_for(whole)["state"] == "finished"

        run = here.hand("launch", document=document)
        here.hold(run, at=10)
        trainer = here.wait_for(run, "running", iteration=10)["pid"]
        os.kill(old.pid, signal.SIGSTOP)
        os.killpg(trainer, signal.SIGSTOP)
        here.hold(run, at=20)
        here.start_services([worker("two")])
        wait_until(lambda: here.look(run)["attempt"] == 2, seconds=120)
        taken = here.wait_for(run, "running", iteration=20)
        assert taken["worker"] == "two/slot 0"
        checkpoints = sorted(here.files.glob(f"runs/{run}/attempts/1/checkpoints/it-*"))

        # Its worker still sleeps: the trainer itself finds that it has a successor, and saves nothing, not even the
        # checkpoint in whose writing it was stopped.
        os.killpg(trainer, signal.SIGCONT)
        wait_until(lambda: state_of(trainer) in ("Z", ""), seconds=60)
        assert sorted(here.files.glob(f"runs/{run}/attempts/1/checkpoints/*")) == checkpoints
        os.kill(old.pid, signal.SIGCONT)
        wait_until(lambda: state_of(trainer) == "", seconds=60)
        here.release(run)

        finished = here.wait_for(run)
        assert (finished["state"], finished["attempt"]) == ("finished", 2), finished
        assert finished["transitions"] == [
            "queued", "starting", "running", "lost", "queued", "starting", "running", "finished"
        ]  # fmt: skip
        here.check_same(whole, run)
        assert old.poll() is None
