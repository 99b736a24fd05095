"""A checker that hangs, sleeps, crashes, fills the memory or raises costs one sample, and the numbers say so."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from trainer.core.types import Group, Node, Trajectory
from trainer.data.tasks.reasoning_gym import ReasoningGym
from trainer.rewards.exact import TaskReward
from trainer.rewards.gym import GymScorer
from trainer.rewards.worker import CheckerLost, Worker

HOSTILE = "tests.trainer.rewards.hostile_worker"


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker(HOSTILE, seconds=0.5, patience=5.0)
    yield made
    made.close()


@pytest.mark.parametrize(("answer", "why"), [("hang", "out of time"), ("crash", "crashed"), ("fill", "crashed")])
def test_what_is_lost_says_why_and_the_next_question_is_answered(worker: Worker, answer: str, why: str) -> None:
    assert worker.ask("fine") == 1.0
    with pytest.raises(CheckerLost, match=why):
        worker.ask(answer)
    assert worker.ask("fine") == 1.0


def test_one_that_sleeps_for_ever_is_given_up(worker: Worker) -> None:
    worker.patience = 2.0
    with pytest.raises(CheckerLost, match="out of time"):
        worker.ask("sleep")
    assert worker.ask("fine") == 1.0


def test_it_works_in_threads_where_no_signal_may_be_set(worker: Worker) -> None:
    found: list[Any] = []

    def ask() -> None:
        try:
            worker.ask("hang")
        except CheckerLost as error:
            found.append(str(error))
        found.append(worker.ask("fine"))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert found == ["out of time", 1.0]


def test_a_module_that_does_not_start_is_told() -> None:
    with pytest.raises(CheckerLost, match="crashed"):
        Worker("tests.trainer.rewards.no_such_worker").ask("fine")


def test_each_lost_check_is_one_sample_of_the_group_and_is_counted() -> None:
    """Through the task's reward, with a real hang and a real crash."""
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed: pip install -r requirements-tasks.txt")
    task = ReasoningGym()
    task._scorer = GymScorer(seconds=0.5)
    task._scorer._worker.module = HOSTILE
    prompt = task.generate(random.Random(0))
    texts = ("right", "hang", "crash", "<answer>sleep well</answer>")
    group = Group(
        prompt,
        [Trajectory([Node(0, [])], prompt.uid, i, "eos", text=text) for i, text in enumerate(texts)],
        id=prompt.uid,
    )
    scored = TaskReward().score(group, SimpleNamespace(task=task))  # type: ignore[arg-type]
    assert [one["accuracy"] for one in scored] == [1.0, 0.0, 0.0, 1.0]
    assert [t.judged_by for t in group.trajectories] == [
        "reasoning-gym", "reasoning-gym: out of time", "reasoning-gym: crashed", "reasoning-gym",
    ]  # fmt: skip
    task._scorer.close()
