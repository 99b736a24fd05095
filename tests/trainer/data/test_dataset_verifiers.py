"""Datasets whose rows name a checker of their own: reasoning-gym dumps, and HumanEval, whose tests nothing here runs."""

from __future__ import annotations

import gzip
import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from trainer.contract.dataset import Mapping
from trainer.core.errors import ConfigError
from trainer.data.importers.imports import import_file, inspect
from trainer.data.task import problems
from trainer.data.tasks import make_task
from trainer.data.tasks.dataset import Dataset

HUMAN_EVAL = [
    {
        "task_id": f"HumanEval/{i}", "prompt": f"def add_{i}(a, b):\n    \"\"\"The sum.\"\"\"\n", "entry_point": f"add_{i}",
        "canonical_solution": "    return a + b\n", "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
    }
    for i in range(20)
]  # fmt: skip


def version(
    folder: Path, rows: list[dict[str, Any]], name: str = "rows.jsonl"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Params of the task for a version of these rows as they are recognised, and its report."""
    path = folder / name
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    recognised = inspect(path, path.name, scratch=folder)["recognised"]
    report = import_file(path, path.name, out=folder / "v", mapping=Mapping.model_validate(recognised))
    return {"uri": "v/rows.parquet", "content_hash": report["content_hash"], "sha256": report["sha256"]}, report


def opened(folder: Path, params: dict[str, Any]) -> Dataset:
    task = make_task("dataset", params)
    assert isinstance(task, Dataset)
    task.prepare(folder, lambda prompt: None, lambda text: None)
    return task


def dump(name: str, count: int, **config: Any) -> list[dict[str, Any]]:
    """Rows as reasoning-gym's users save them."""
    factory = pytest.importorskip(
        "reasoning_gym.factory", reason="reasoning-gym is not installed: pip install -r requirements-tasks.txt"
    )
    dataset = factory.create_dataset(name, size=count, seed=3, **config)
    return [json.loads(json.dumps(dataset[i])) for i in range(count)]


@pytest.mark.parametrize("name", ["countdown", "graph_color"])
@pytest.mark.parametrize("as_text", [False, True])
def test_a_dump_is_judged_by_its_generators_checker(tmp_path: Path, name: str, as_text: bool) -> None:
    rows = dump(name, 40)
    if as_text:
        rows = [{**row, "metadata": json.dumps(row["metadata"])} for row in rows]
    params, report = version(tmp_path, rows)
    assert report["answer_types"] == {"gym": 40}
    task = opened(tmp_path, params)
    [prompt] = problems(task, "train", 1, seed=0)
    metadata = prompt.meta["metadata"]
    metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
    # Another right text than the gold one, or one where there is no gold answer at all.
    right = json.dumps(metadata["possible_answer"]) if name == "graph_color" else f"({metadata['expression']})"
    found = task.score(f"I think <answer>{right}</answer>", prompt)
    assert (found.reward, found.by) == (1.0, "reasoning-gym")
    wrong = task.score("<answer>1</answer>", prompt)
    assert wrong.reward == 0.0
    assert wrong.by.startswith("reasoning-gym")


def test_a_dump_of_a_generator_with_an_unsound_checker_is_refused_by_row(tmp_path: Path) -> None:
    params, _ = version(tmp_path, dump("coin_flip", 30))
    with pytest.raises(
        ConfigError, match=r"rows.jsonl, line \d+: the problem is of the generator coin_flip, which is not used"
    ):
        problems(opened(tmp_path, params), "train", 5, seed=0)


def test_a_dump_of_an_unknown_generator_is_refused_by_row(tmp_path: Path) -> None:
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed: pip install -r requirements-tasks.txt")
    rows = [{"question": f"q{i}", "answer": "a", "metadata": {"source_dataset": "mine"}} for i in range(30)]
    params, _ = version(tmp_path, rows)
    with pytest.raises(ConfigError, match=r"names 'mine' in metadata.source_dataset"):
        problems(opened(tmp_path, params), "train", 5, seed=0)


def test_human_eval_is_a_test_set_whose_programs_are_not_run(tmp_path: Path) -> None:
    params, report = version(tmp_path, HUMAN_EVAL, "HumanEval.jsonl.gz")
    assert report["splits"] == {"train": 0, "validation": 0, "test": 20}
    assert report["answer_types"] == {"program": 20}
    assert report["completions"] == 20
    task = opened(tmp_path, params)
    with pytest.raises(ConfigError, match=r"line \d+: the problem is judged by tests, which this release cannot run"):
        problems(task, "test", 5, seed=0)
    rows = itertools.islice(task.demonstrations("test", random.Random(0)), 3)
    assert all(text == "    return a + b\n" for _, text in rows)
