"""A process by a clock that is off has the time of that clock, also when it jumps meanwhile."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.installed.processes import ROOT, environment
from tests.storm.clocks import HOUR, JUMPS, Clocks

PROGRAM = """
import sys, time
from django.utils import timezone
for line in sys.stdin:
    print(time.time(), timezone.now().timestamp(), time.monotonic(), flush=True)
"""


def test_a_clock_jumps_for_its_own_process_alone(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path / "clocks", ["web", "worker"])
    (tmp_path / "program.py").write_text(PROGRAM)
    process = subprocess.Popen(
        clocks.command("web", (sys.executable, str(tmp_path / "program.py"))), cwd=ROOT, text=True,
        env=environment(tmp_path / "data"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    for jump in (0.0, *JUMPS, 0.0):
        clocks.set("web", jump)
        clocks.set("worker", 7 * HOUR)
        before = time.time(), time.monotonic()
        process.stdin.write("\n")
        process.stdin.flush()
        wall, zone, monotonic = map(float, process.stdout.readline().split())
        after = time.time(), time.monotonic()
        assert before[0] + jump - 0.001 <= wall <= zone <= after[0] + jump + 0.001
        assert before[1] <= monotonic <= after[1]
    process.stdin.close()
    assert process.wait(30) == 0


def test_a_trainer_writes_the_time_of_its_clock_into_its_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = Clocks(tmp_path / "clocks", ["trainers"])
    clocks.set("trainers", -HOUR)
    program = "from trainer.contract import events as ev\nfrom trainer.loop.emitter import EventWriter\n"
    program += "from pathlib import Path\nEventWriter(Path('events.jsonl'), run='r', attempt=1)(ev.Log(message='x'))\n"
    # The trainer is known by its name, wherever it lies.
    (tmp_path / "trainer").write_text(program)
    env = environment(tmp_path / "data")
    subprocess.run(clocks.command("trainers", (sys.executable, "trainer")), cwd=tmp_path, env=env, check=True)
    from trainer.contract.events import parse_line

    [line] = (tmp_path / "events.jsonl").read_bytes().splitlines()
    assert abs(parse_line(line).time.timestamp() + HOUR - time.time()) < 60
