"""A dataset version as a run's task: drawn by seed and split, judged by type, refused when it is not what was named."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from trainer.contract.dataset import Mapping
from trainer.core.errors import ConfigError, DatasetError
from trainer.core.types import Prompt
from trainer.data.importers.imports import import_file, inspect
from trainer.data.task import SPLITS, problems
from trainer.data.tasks import make_task
from trainer.data.tasks.dataset import Dataset


def version(folder: Path, rows: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """Params of the task for a version that is made of these rows below ``folder``."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    recognised = inspect(path, path.name, scratch=folder)["recognised"]
    report = import_file(path, path.name, out=folder / "v", mapping=Mapping.model_validate({**recognised, **changes}))
    return {"uri": "v/rows.parquet", "content_hash": report["content_hash"], "sha256": report["sha256"]}


def opened(folder: Path, params: dict[str, Any], *, longest: int = 10**6) -> Dataset:
    task = make_task("dataset", params)
    assert isinstance(task, Dataset)
    said: list[str] = []
    task.prepare(folder, lambda p: f"it has {len(p.text)} characters" if len(p.text) > longest else None, said.append)
    task.said = said  # type: ignore[attr-defined]
    return task


SUMS = [{"question": f"{a}+{b}?", "answer": f"so\n#### {a + b}"} for a in range(20) for b in range(20)]


@pytest.fixture
def sums(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    return tmp_path, version(tmp_path, SUMS)


def test_problems_are_drawn_by_split_and_seed(sums: tuple[Path, dict[str, Any]]) -> None:
    task = opened(*sums)
    drawn = {split: problems(task, split, 25, seed=0) for split in SPLITS}
    uids = {split: {p.uid for p in found} for split, found in drawn.items()}
    assert all(len(found) == 25 for found in uids.values())
    for one, other in itertools.combinations(SPLITS, 2):
        assert not uids[one] & uids[other]
    assert problems(task, "train", 25, seed=0) == drawn["train"]
    assert problems(task, "train", 40, seed=0)[:25] == drawn["train"]
    assert problems(task, "train", 25, seed=1) != drawn["train"]


def test_gold_is_right_junk_is_wrong_and_the_comparer_is_named(sums: tuple[Path, dict[str, Any]]) -> None:
    task = opened(*sums)
    for prompt in problems(task, "test", 10, seed=0):
        right = task.score(f"it is \\boxed{{{prompt.answer}}}", prompt)
        assert (right.reward, right.answer, right.by) == (1.0, prompt.answer, "int")
        assert task.score(task.oracle(prompt, random.Random(0)), prompt).reward == 1.0
        assert task.score(prompt.text, prompt).reward == 0.0
        assert task.score("", prompt).answer is None


def test_chance_is_undefined_but_for_options(sums: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    assert problems(opened(*sums), "test", 1, seed=0)[0].meta["chance"] is None
    folder = tmp_path / "choice"
    folder.mkdir()
    rows = [{"question": "q", "options": ["a", "b", "c", "d"], "answer": "C", "split": "test"}]
    [prompt] = problems(opened(folder, version(folder, rows)), "test", 1, seed=0)
    assert prompt.meta["chance"] == 0.25


def test_demonstrations_are_the_worked_solutions_of_the_split(sums: tuple[Path, dict[str, Any]]) -> None:
    task = opened(*sums)
    held_out = {p.uid for split in ("validation", "test") for p in problems(task, split, 20, seed=0)}  # type: ignore[arg-type]
    rows = list(itertools.islice(task.demonstrations("train", random.Random(0)), 500))
    assert not held_out & {prompt.uid for prompt, _ in rows}
    assert all(text == f"so\n#### {prompt.answer}" for prompt, text in rows)
    again = list(itertools.islice(task.demonstrations("train", random.Random(0)), 500))
    assert again == rows


def test_a_file_that_is_not_the_one_named_is_refused(sums: tuple[Path, dict[str, Any]]) -> None:
    folder, params = sums
    with pytest.raises(DatasetError, match="the run names 0000000000000000"):
        opened(folder, {**params, "content_hash": "0" * 64})
    with (folder / params["uri"]).open("r+b") as file:
        file.seek(1000)
        file.write(b"\x00\x01")
    with pytest.raises(DatasetError, match="it was changed or damaged"):
        opened(folder, params)
    with pytest.raises(DatasetError, match="dataset version not found"):
        opened(folder, {**params, "uri": "elsewhere.parquet"})


def test_too_few_problems_name_the_setting(sums: tuple[Path, dict[str, Any]]) -> None:
    with pytest.raises(
        ConfigError, match=r"has \d+ validation problems, but 1000 were asked for: lower evaluation.problems"
    ):
        problems(opened(*sums), "validation", 1000, seed=0)


def test_prompts_that_do_not_fit_are_refused_by_row_or_left_out(tmp_path: Path) -> None:
    rows = [{"prompt": "x" * n, "answer": "1", "split": "train"} for n in range(1, 31)]
    params = version(tmp_path, rows)
    with pytest.raises(
        ConfigError, match=r"rows.jsonl, line \d+: it has \d\d characters; set task.params.long_prompts"
    ):
        problems(opened(tmp_path, params, longest=20), "train", 20, seed=0)
    lenient = opened(tmp_path, {**params, "long_prompts": "leave_out"}, longest=20)
    assert {len(p.text) for p in problems(lenient, "train", 20, seed=0)} == set(range(1, 21))
    assert lenient.said == ["10 train problems were left out because they do not fit the model"]  # type: ignore[attr-defined]


def test_another_version_is_another_evaluation_set(sums: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    task = opened(*sums)
    assert task.checker_version.endswith(sums[1]["content_hash"][:16])


def test_rows_without_gold_serve_fine_tuning_only(tmp_path: Path) -> None:
    rows = [{"prompt": f"q{i}", "completion": "a", "split": "train"} for i in range(3)]
    task = opened(tmp_path, version(tmp_path, rows))
    assert next(task.demonstrations("train", random.Random(0)))[1] == "a"
    with pytest.raises(ConfigError, match="has no gold answer"):
        problems(task, "train", 1, seed=0)


def test_messages_keep_their_roles(tmp_path: Path) -> None:
    rows = [{"prompt": [{"role": "system", "content": "Brief."}, {"role": "user", "content": "q"}], "answer": "1"}]
    task = opened(tmp_path, version(tmp_path, rows, shares={"train": 1, "validation": 0, "test": 0}))
    [prompt] = problems(task, "train", 1, seed=0)
    assert isinstance(prompt, Prompt)
    assert [(m.role, m.content) for m in prompt.messages] == [("system", "Brief."), ("user", "q")]
