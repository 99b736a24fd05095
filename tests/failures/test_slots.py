"""Several workers, queues, devices and draining, with real processes and a trainer that trains nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.installed.processes import ROOT, Installed, any_port, installed, wait_until
from tests.webapp.making import document
from webapp.demo.processes import Service

pytestmark = pytest.mark.slow

FAKE = ROOT / "tests" / "webapp" / "launch" / "fake_trainer.py"


def worker(name: str, *options: str) -> Service:
    return Service(name, (sys.executable, str(ROOT / "manage.py"), "worker", "--name", name, *options))


def device_of(run: dict[str, Any]) -> str:
    """What the trainer sees of the host's devices."""
    variables = Path(f"/proc/{run['pid']}/environ").read_bytes().split(b"\0")
    return next(one.partition(b"=")[2].decode() for one in variables if one.startswith(b"CUDA_VISIBLE_DEVICES="))


def running(here: Installed, run: str) -> dict[str, Any]:
    wait_until(lambda: here.look(run)["pid"], seconds=120)
    return here.wait_for(run, "running", seconds=120)


def stopped(here: Installed, run: str) -> None:
    here.hand("stop", run=run)
    here.wait_for(run, "stopped", seconds=120)


def test_each_slot_has_a_device_and_a_drained_worker_keeps_what_it_has(tmp_path: Path) -> None:
    extra = {
        "UNSQUEEZE_QUEUES": "default,gpu",
        "UNSQUEEZE_RESEND_SECONDS": "1",
        "UNSQUEEZE_TRAINER_COMMAND": f"{sys.executable} -S {FAKE} wait",
    }
    with installed(tmp_path / "data", port=any_port(), extra=extra, start=("scheduler",)) as here:
        here.hand("people", roles={"ada@example.org": "owner"})
        one, two, three = (
            here.hand("launch", document=document(), run_name=name, queue="gpu") for name in ("one", "two", "three")
        )
        assert set(here.hand("waiting").values()) == {"No live worker serves the queue gpu."}
        here.start_services([worker("gpu", "--queues", "gpu", "--devices", "4,7"), worker("cpu")])
        first, second = running(here, one), running(here, two)
        device = device_of(first)
        assert {device, device_of(second)} == {"4", "7"}
        assert {first["worker"], second["worker"]} == {"gpu/slot 0", "gpu/slot 1"}
        assert here.hand("waiting") == {"three": "Every slot of the queue gpu is taken."}

        stopped(here, one)
        third = running(here, three)
        assert (third["worker"], device_of(third)) == (first["worker"], device)

        here.hand("drain", worker="gpu")
        fourth = here.hand("launch", document=document(), run_name="four", queue="gpu")
        stopped(here, two)
        assert here.look(three)["state"] == "running"
        assert here.hand("waiting") == {"four": "Every worker of the queue gpu is being drained."}
        here.start_services([worker("spare", "--queues", "gpu,default")])
        moved = running(here, fourth)
        assert (moved["worker"], device_of(moved)) == ("spare/slot 0", "")
        assert here.look(three)["state"] == "running"
