"""Reported faults of checkers: what an empty or a partial answer is worth. Numbers as in the anchors, section 3."""

from __future__ import annotations

import importlib.util
import os
import random
from typing import get_args

import pytest

from trainer.contract.dataset import Checking
from trainer.contract.dataset import Mapping as ColumnMapping
from trainer.data.tasks import TASKS
from trainer.rewards.compare import judge

KINDS = [
    k for k in get_args(ColumnMapping.model_fields["answer_type"].annotation) if k not in ("auto", "program", "gym")
]
GOLD = {
    "int": "120",
    "float": "1.25",
    "expr": "x+12",
    "choice": "B",
    "set": "{1, 22}",
    "list": "[1, 22]",
    "string": "Paris",
}


@pytest.mark.parametrize("name", sorted(set(TASKS) - {"dataset"}))
def test_24_an_empty_answer_is_a_part_of_the_gold_answer_and_counts(name: str) -> None:
    if name == "reasoning_gym" and importlib.util.find_spec("reasoning_gym") is None:
        missing = "reasoning-gym is not installed: pip install -r requirements-tasks.txt"
        pytest.fail(f"CI must run this test: {missing}") if os.environ.get("CI") else pytest.skip(missing)
    task = TASKS[name](TASKS[name].Params())
    rng = random.Random(0)
    for _ in range(5):
        prompt = task.generate(rng)
        right = task.oracle(prompt, rng)
        assert task.score(right, prompt).reward == 1.0
        for junk in ("", " ", "\n", "()", "<answer></answer>"):
            assert task.score(junk, prompt).reward == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_24_a_part_of_the_gold_answer_of_a_dataset_counts(kind: str) -> None:
    gold = GOLD[kind]
    checking = Checking(options=(("A", "one"), ("B", "two"))) if kind == "choice" else Checking()
    assert judge(gold, gold, kind, checking).right is True
    for cut in (*(gold[:n] for n in range(len(gold))), " ", "\\boxed{}", "#### ", f"{gold} or {gold}1"):
        assert judge(cut, gold, kind, checking).right is False, cut
