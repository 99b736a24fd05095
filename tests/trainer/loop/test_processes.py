"""Two processes train one run: the same numbers as one alone, checkpoints for any number, and one end for all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from trainer.contract.config import InvalidConfig
from trainer.contract.exit_codes import ExitCode
from trainer.core.world import World
from trainer.launch import processes_of, run_processes
from trainer.loop import checkpoint_files
from trainer.methods import resolve
from trainer.testing.replay import events_of, story_of

RATE = 0.003
ALGORITHM = {
    "prompts_per_iteration": 3, "num_generations": 4, "kl_coef": 0.1, "num_iterations": 2, "minibatches": 3,
    "entropy_coef": 0.01, "microbatch_tokens": 64,
}  # fmt: skip
TWO = {"hardware": {"processes": 2}}
COMMAND = [sys.executable, "-m", "trainer"]
SLOW = pytest.mark.slow


def start(verb: str, target: Path, base: Path, *more: str, **environment: str) -> subprocess.Popen[bytes]:
    command = [*COMMAND, verb, str(target), "--files", str(base), "--quiet", *more]
    own = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[3]), **environment}
    return subprocess.Popen(command, env=own, stderr=subprocess.PIPE, start_new_session=True)


def launch(document: dict[str, Any], folder: Path, base: Path, **environment: str) -> subprocess.Popen[bytes]:
    folder.mkdir()
    (folder / "given.json").write_text(json.dumps(document))
    return start("run", folder / "given.json", base, "--out", str(folder / "r"), **environment)


def wait_for(condition: Any, child: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert child.poll() is None and time.monotonic() < end, child.stderr and child.stderr.read().decode()  # noqa: PT018
        time.sleep(0.05)


def started(run: Path, kind: str) -> bool:
    file = run / "attempts/1/events.jsonl"
    return file.exists() and f'"kind":"{kind}"' in file.read_text()


def assert_near(one: Path, two: Path, steps: int) -> None:
    """Losses and other numbers to 1e-6, AdamW's moments to 1e-6 of fp32 sums in another order. AdamW divides a weight's
    gradient by its size, so that where it is nearly 0 the rounding decides: weights agree to a hundredth of the rate a step."""
    a, b = story_of(one), story_of(two)
    assert a.axes == b.axes
    assert a.evaluations == b.evaluations
    assert a.rollouts == b.rollouts
    assert a.scalars.keys() == b.scalars.keys()
    for key, value in a.scalars.items():
        assert b.scalars[key] == pytest.approx(value, abs=2e-6, rel=1e-5), key
    last = [checkpoint_files.newest_checkpoint(run) for run in (one, two)]
    for file, tolerance in (("policies/policy/model", 0.01 * RATE * steps), ("optimizer.policy", 1e-6)):
        x, y = (load_file(folder / f"{file}.safetensors") for folder in last if folder)
        assert x.keys() == y.keys()
        assert max(float((x[k] - y[k]).abs().max()) for k in x) < tolerance


@SLOW
def test_two_processes_train_as_one_and_each_goes_on_where_the_other_stopped(run, document, base, tmp_path) -> None:  # type: ignore[no-untyped-def]
    def of(iterations: int, **changes: Any) -> dict[str, Any]:
        return document(
            algorithm=ALGORITHM, optimizer={"learning_rate": RATE}, budget={"iterations": iterations}, **changes
        )

    assert run(of(4), tmp_path / "one") == ExitCode.FINISHED
    child = launch(of(4, **TWO), tmp_path / "two", base)
    assert child.wait() == ExitCode.FINISHED, child.stderr.read()
    assert_near(tmp_path / "one", tmp_path / "two/r", steps=4 * 6)
    assert sorted(p.name for p in (tmp_path / "two/r/attempts/1").iterdir()) == [
        "checkpoints",
        "events.jsonl",
        "rollouts",
    ]
    # Half of it with one, half with two, in both orders. The last validation and test are those of the longer run.
    for name, first, then in (("12", {}, TWO), ("21", TWO, {"hardware": {"processes": 1}})):
        child = launch(of(2, **first), tmp_path / name, base)
        assert child.wait() == ExitCode.FINISHED, child.stderr.read()
        half = tmp_path / name / "r"
        (half / "config.json").write_text(json.dumps(of(4, **then)))
        child = start("resume", half, base)
        assert child.wait() == ExitCode.FINISHED, child.stderr.read()
        ends = [checkpoint_files.newest_checkpoint(r) for r in (tmp_path / "one", half)]
        x, y = (load_file(folder / "policies/policy/model.safetensors") for folder in ends if folder)
        assert max(float((x[k] - y[k]).abs().max()) for k in x) < 0.01 * RATE * 4 * 6


@SLOW
def test_fine_tuning_in_two_processes_is_that_of_one(run, base, tmp_path) -> None:  # type: ignore[no-untyped-def]
    document = json.loads((base / "sft/config.json").read_text())
    # Nine rows in batches of three: two processes share them unevenly.
    document |= {"sft": {"rows": 9, "batch_size": 3}, "optimizer": {"learning_rate": RATE}, "budget": {"iterations": 6}}
    assert run(document, tmp_path / "one") == ExitCode.FINISHED
    child = launch(document | TWO, tmp_path / "two", base)
    assert child.wait() == ExitCode.FINISHED, child.stderr.read()
    assert_near(tmp_path / "one", tmp_path / "two/r", steps=6)


@SLOW
def test_a_stop_is_agreed_and_saved_once(document, base, tmp_path) -> None:  # type: ignore[no-untyped-def]
    child = launch(document(budget={"iterations": 100000}, **TWO), tmp_path / "x", base)
    wait_for(lambda: started(tmp_path / "x/r", "scalars"), child)
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == ExitCode.STOPPED, child.stderr.read()
    events = events_of(tmp_path / "x/r")
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    assert (events[-1].event.kind, events[-1].event.state) == ("state", "stopped")
    assert sum(e.event.kind == "checkpoint" and e.event.axes == events[-3].event.axes for e in events) == 1


FAILS = """
from trainer.core.registry import MethodParams, MethodSpec, Paper

class Fails:
    def __init__(self, params, config): pass
    def shape(self, advantage, batch, ctx):
        if ctx.world.rank == 1 and ctx.iteration == 2:
            raise ZeroDivisionError("only here")
        return advantage

SPEC = MethodSpec(slug="fails", title="Fails", summary="For a test.", paper=Paper("None", "0000.00000", "Nobody"),
                  params=MethodParams, parts={"advantage": (f"{__name__}:Fails",)})
"""


@SLOW
def test_an_error_in_one_process_ends_all_with_its_message(document, base, tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "fails.py").write_text(FAILS)
    began = time.monotonic()
    child = launch(
        document(methods=[{"slug": "fails"}], **TWO),
        tmp_path / "x",
        base,
        UNSQUEEZE_METHOD_FILES=str(tmp_path / "fails.py"),
    )
    assert child.wait(120) == ExitCode.METHOD, child.stderr.read()
    last = events_of(tmp_path / "x/r")[-1].event
    assert last.state == "failed"
    assert "process 2 of 2: Fails (slot 'advantage') raised ZeroDivisionError: only here" in last.message
    assert time.monotonic() - began < 100


@SLOW
def test_a_killed_process_ends_the_others_within_seconds(document, base, tmp_path) -> None:  # type: ignore[no-untyped-def]
    child = launch(document(budget={"iterations": 100000}, **TWO), tmp_path / "x", base)
    wait_for(lambda: started(tmp_path / "x/r", "scalars"), child)
    children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    assert len(children) == 2
    os.kill(int(children[1]), signal.SIGKILL)
    assert child.wait(60) == 128 + signal.SIGKILL
    last = events_of(tmp_path / "x/r")[-1].event
    assert last.state == "failed"


@SLOW
def test_processes_stop_when_their_command_dies(document, base, tmp_path) -> None:  # type: ignore[no-untyped-def]
    child = launch(document(budget={"iterations": 100000}, **TWO), tmp_path / "x", base)
    wait_for(lambda: started(tmp_path / "x/r", "scalars"), child)
    children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    child.kill()
    child.wait()
    end = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in children):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert events_of(tmp_path / "x/r")[-1].event.state == "stopped"


def test_the_command_ends_as_its_processes_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    assert (
        run_processes(2, ["run", str(tmp_path / "none.json"), "--out", str(tmp_path)], parent_fd=None)
        == ExitCode.CONFIG
    )


def test_only_a_process_of_its_own_starts_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert [processes_of(d) for d in (TWO, {}, {"hardware": {"processes": "many"}}, [])] == [2, 1, 1, 1]
    monkeypatch.setenv("RANK", "0")
    assert processes_of(TWO) == 1


def test_groups_are_not_split_over_processes() -> None:
    world = World()
    world.size = 2
    assert world.share_of(["a", "a", "b", "c", "b"]) == [[0, 1, 3], [2, 4]]
    assert world.share_of(["a", "a"]) == [[0, 1], []]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rollout": {"engine": "vllm"}}, "vLLM.*rollout.engine"),
        ({"policy": {"checkpoint": "base", "lora": {"rank": 4}}}, "LoRA.*policy.lora.rank"),
        ({"algorithm": {"preset": "ppo", "prompts_per_iteration": 4}}, "value head"),
        ({"algorithm": {"entropy_target": 0.5, "prompts_per_iteration": 4}}, "entropy_target"),
        ({"methods": [{"slug": "longact"}]}, "LongAct.*update"),
    ],
)
def test_what_one_process_alone_can_do_is_refused_before_the_start(changes: Any, named: str, document: Any) -> None:
    resolve(document(**changes))
    with pytest.raises(InvalidConfig, match=f"hardware.processes: found 2 with .*{named}"):
        resolve(document(**changes, **TWO))
