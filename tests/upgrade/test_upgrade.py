"""The data of an earlier release under this code: it opens, shows the same numbers, duplicates, resumes.

`make_release.py` made the archive with that release's own code and says what is in it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.installed.processes import ROOT, Hand, any_port, environment, installed

OWNER = "ada@example.org"


def ran(env: dict[str, str], *arguments: str) -> str:
    """What a program of the repository printed."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=env, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def check_that_everything_is_there(env: dict[str, str], expected: dict[str, Any]) -> None:
    ran(env, "manage.py", "migrate", "--no-input", "--verbosity", "0")
    pages: dict[str, Any] = json.loads(ran(env, "-m", "tests.upgrade.visit", OWNER))
    assert {address: status for address, (status, _) in pages.items() if status != 200} == {}
    hand = Hand(env)
    try:
        for name, run in expected["runs"].items():
            check_run(name, run, pages, hand)
    finally:
        hand.close()


def check_run(name: str, run: dict[str, Any], pages: dict[str, Any], hand: Hand) -> None:
    found = hand("look", run=run["id"])
    for told, key in (("state", "state"), ("message", "message"), ("iteration", "iteration"), ("attempt", "attempts")):
        assert found[told] == run[key], (name, told)
    assert found["transitions"] == run["transitions"], name
    record = hand("record", run=run["id"])
    for part, value in run["record"].items():
        assert record[part] == value, (name, part)
    at = f"/p/lab/chains/runs/{run['id']}/"
    assert name in pages[at][1]
    for tab in ("squeezing", "rollouts", "evaluations", "config"):
        assert name in pages[at + tab][1], (name, tab)
    if rewards := run["record"]["series"].get("reward"):
        shown = json.loads(pages[f"{at}charts/reward?x=iteration"][1])["series"][0]
        assert [shown["x"], shown["y"]] == rewards[:2], name
    for weights in [evaluation[3] for evaluation in run["record"]["evaluations"]]:
        assert weights[:8] in pages[at + "evaluations"][1], name
    # The same configuration, as this release resolves it: what it had said before is still said.
    copy = hand("duplicate", run=run["id"])
    if name == "no such base":
        assert copy["config"] is None
        assert "'checkpoints/nowhere', which is no checkpoint of this project" in copy["problems"][0]
    else:
        assert_within(run["config"], copy["config"], name)
    assert f'value="{run["id"]}"' in pages[f"/p/lab/chains/launch/?from={run['id']}"][1], name


def assert_within(old: Any, new: Any, where: str) -> None:
    """Every setting of `old` stands in `new` with its value; `new` may have more."""
    if isinstance(old, dict):
        for name, value in old.items():
            if name != "schema_version":
                assert_within(value, new[name], f"{where}.{name}")
    elif isinstance(old, list):
        assert len(new) == len(old), where
        for place, (before, now) in enumerate(zip(old, new, strict=True)):
            assert_within(before, now, f"{where}.{place}")
    else:
        assert new == old, where


def test_a_first_release_opens_and_duplicates(unpacked: Path, expected: dict[str, Any]) -> None:
    rewards = expected["runs"]["grpo and sps"]["record"]["series"]["reward"][1]
    assert len(rewards) == 24
    assert any(rewards), "the release's own numbers tell nothing"
    check_that_everything_is_there(environment(unpacked / "data"), expected)


@pytest.mark.postgres
def test_a_first_release_opens_and_duplicates_on_postgresql(
    unpacked: Path, expected: dict[str, Any], postgres: str
) -> None:
    (unpacked / "data" / "db.sqlite3").unlink()
    env = environment(unpacked / "data", {"UNSQUEEZE_DATABASE_URL": postgres})
    check_that_everything_is_there(env, expected)


@pytest.mark.slow
def test_its_runs_resume_to_the_same_numbers(unpacked: Path, expected: dict[str, Any]) -> None:
    check_that_runs_resume(unpacked, expected, {})


@pytest.mark.slow
@pytest.mark.postgres
def test_its_runs_resume_to_the_same_numbers_on_postgresql(
    unpacked: Path, expected: dict[str, Any], postgres: str
) -> None:
    check_that_runs_resume(unpacked, expected, {"UNSQUEEZE_DATABASE_URL": postgres})


def check_that_runs_resume(unpacked: Path, expected: dict[str, Any], extra: dict[str, str]) -> None:
    """With this release's own worker and scheduler: what was stopped, killed or left in the queue arrives."""
    runs = expected["runs"]
    with installed(unpacked / "data", port=any_port(), extra=extra, start=("worker", "scheduler")) as here:
        for name in ("stopped", "killed"):
            here.hand("resume", run=runs[name]["id"])
        for name in ("stopped", "killed", "in the queue"):
            done = here.wait_for(runs[name]["id"])
            assert done["state"] == "finished", (name, done, here.logs())
            assert done["attempt"] == runs[name]["attempts"] + (name != "in the queue"), name
        for name in ("stopped", "killed"):
            record = here.hand("record", run=runs[name]["id"])
            check_twin(record, runs[f"{name} undisturbed"]["record"], runs[name]["iteration"])


def check_twin(found: dict[str, Any], undisturbed: dict[str, Any], resumed_at: int) -> None:
    """The resumed run is the undisturbed one up to its first iteration of its own, with numbers within rounding.

    Not bit for bit, and no further: how sums are rounded depends on the processor (two kinds with AVX-512 differ by 1e-7
    here), the archive comes from another one, and some iterations later another token is drawn and all that follows differs.
    That first iteration samples and trains with all that was restored: weights, place in the schedule, random numbers.
    """
    assert found["phases"] == undisturbed["phases"]
    assert [row[:3] for row in found["evaluations"]] == [row[:3] for row in undisturbed["evaluations"]]
    sure = resumed_at + 1
    for iteration, axes in undisturbed["axes"].items():
        if int(iteration) <= sure:
            # That release's checkpoints don't say which phase the last iteration was of.
            assert {**found["axes"][iteration], "phase": axes["phase"]} == axes, iteration
    for key, (iterations, values, _) in undisturbed["series"].items():
        here = found["series"][key]
        assert here[0] == iterations, key
        count = sum(iteration <= sure for iteration in iterations)
        assert here[1][:count] == pytest.approx(values[:count], rel=1e-3, abs=1e-5), key
    for row, old in zip(found["evaluations"], undisturbed["evaluations"], strict=True):
        if row[0] <= resumed_at:
            assert row[4] == old[4], row[:3]
