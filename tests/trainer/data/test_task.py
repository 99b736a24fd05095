"""What holds for every built-in task: gold is right, junk is wrong, nothing raises, splits never share a problem."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.core.errors import ConfigError
from trainer.core.types import Prompt
from trainer.data.alphabet import ALPHABET
from trainer.data.task import SPLITS, Task, TaskParams, problems, split_of
from trainer.data.tasks import PROCEDURAL, TASKS, make_task
from trainer.data.tasks.parity import ParityParams

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("countdown", {}),
    ("countdown", {"numbers": 3}),
    ("countdown", {"numbers": 5, "largest": 9}),
    ("countdown", {"operators": "+-*/", "min_solutions": 2, "arrangement": "ordered"}),
    ("mod_chain", {}),
    ("mod_chain", {"terms": 5, "largest": 999, "modulus": 1000}),
    ("mod_chain", {"terms": 4, "worked": True}),
    ("parity", {}),
    ("branches", {}),
    ("branches", {"parts": 2, "numbers": 2, "chains": 0.0}),
    ("branches", {"chains": 1.0, "forks": 0.5}),
    ("maze", {}),
    ("maze", {"size": 3, "slack": 0, "min_moves": 1}),
    ("lookup", {}),
    ("lookup", {"hops": 2, "shortest": 40, "longest": 300, "longest_held_out": 512, "word": 3}),
]
EXPECTED_SPLITS = ["train", "test", "train", "train", "train", "train"]
EXPECTED_PROMPT = ("2 9 13 14=11:", "c7002204d13e2dbd")

every_variant = pytest.mark.parametrize(("name", "params"), VARIANTS, ids=str)


def some(task: Task, count: int, seed: int = 0) -> list[Prompt]:
    rng = random.Random(seed)
    return [task.generate(rng) for _ in range(count)]


@every_variant
def test_gold_completions_are_right(name: str, params: dict[str, Any]) -> None:
    task, rng = make_task(name, params), random.Random(1)
    for prompt in some(task, 30):
        verdict = task.score(task.oracle(prompt, rng), prompt)
        assert verdict.reward == 1.0
        assert verdict.answer == prompt.answer
        assert verdict.canonical is not None


@every_variant
def test_texts_stay_in_the_alphabet_and_within_the_stated_lengths(name: str, params: dict[str, Any]) -> None:
    task, rng = make_task(name, params), random.Random(1)
    for prompt in some(task, 60):
        completion = task.oracle(prompt, rng)
        assert set(prompt.text + completion) <= set(ALPHABET)
        assert len(prompt.text) <= task.max_prompt_chars
        assert 0 < len(completion) <= task.max_completion_chars


def test_the_alphabet_holds_each_character_once() -> None:
    assert len(set(ALPHABET)) == len(ALPHABET) == 51


@every_variant
def test_generation_depends_on_the_seed_only(name: str, params: dict[str, Any]) -> None:
    assert some(make_task(name, params), 10, seed=3) == some(make_task(name, params), 10, seed=3)
    assert some(make_task(name, params), 10, seed=3) != some(make_task(name, params), 10, seed=4)


@every_variant
def test_perturbed_problems_accept_the_same_completions(name: str, params: dict[str, Any]) -> None:
    task, rng = make_task(name, params), random.Random(2)
    changed = 0
    for prompt in some(task, 30):
        other = task.perturb(prompt, rng)
        changed += other.text != prompt.text
        assert task.score(task.oracle(prompt, rng), other).reward == 1.0
        assert task.score(task.oracle(other, rng), prompt).reward == 1.0
        assert other.answer == prompt.answer
    assert changed > 10


@pytest.mark.parametrize("name", list(PROCEDURAL))
@given(text=st.text() | st.text(alphabet=ALPHABET, max_size=30), seed=st.integers(0, 5))
def test_no_text_raises_and_verdicts_are_consistent(name: str, text: str, seed: int) -> None:
    task = make_task(name)
    prompt = task.generate(random.Random(seed))
    verdict = task.score(text, prompt)
    assert verdict.reward == float(verdict.answer == prompt.answer)
    assert (verdict.answer is None) == (verdict.canonical is None)


@pytest.mark.parametrize("name", list(PROCEDURAL))
@pytest.mark.parametrize(
    "junk",
    ["", " ", "?", "the answer", "\x00", "\ud800", "=82", "nan", "inf", "1e9", "None", "(" * 5000, "9" * 5000, "-1",
     "1/0", "٣", "u" * 5000],
)  # fmt: skip
def test_junk_earns_nothing(name: str, junk: str) -> None:
    task = make_task(name)
    for prompt in some(task, 5):
        verdict = task.score(junk, prompt)
        assert (verdict.reward, verdict.answer, verdict.canonical) == (0.0, None, None)
        assert task.score(prompt.text, prompt).reward == 0.0


@pytest.mark.parametrize("name", list(PROCEDURAL))
def test_splits_never_share_a_problem(name: str) -> None:
    task = make_task(name)
    uids = {split: {p.uid for p in problems(task, split, 60, seed=0)} for split in SPLITS}
    assert all(len(found) == 60 for found in uids.values())
    for one, other in itertools.combinations(SPLITS, 2):
        assert not uids[one] & uids[other]


def test_splits_are_80_10_10() -> None:
    shares = [split_of(f"{i:016x}") for i in range(20_000)]
    assert [round(shares.count(split) / 20_000, 2) for split in SPLITS] == [0.8, 0.1, 0.1]


def test_the_split_of_a_problem_is_fixed_for_ever() -> None:
    # Literal: a change of the rule would move test problems into training.
    assert [split_of(f"{i:016x}") for i in range(6)] == EXPECTED_SPLITS
    prompt = make_task("countdown").generate(random.Random(0))
    assert (prompt.text, prompt.uid) == EXPECTED_PROMPT


@pytest.mark.parametrize("name", list(PROCEDURAL))
def test_problem_lists_are_reproducible_and_differ_by_seed(name: str) -> None:
    task = make_task(name)
    first = problems(task, "validation", 20, seed=5)
    assert first == problems(task, "validation", 20, seed=5)
    assert first != problems(task, "validation", 20, seed=6)
    # A longer list begins with the shorter one, so a quick evaluation is a part of the full one.
    assert problems(task, "validation", 30, seed=5)[:20] == first


def test_too_small_a_task_says_how_many_problems_it_has() -> None:
    task = make_task("parity", {"bits": 3})
    available = sum(split_of(p.uid) == "train" for p in {p.uid: p for p in some(task, 500)}.values())
    assert 0 < available < 9
    with pytest.raises(ConfigError, match=rf"about {available} train problems .* 9 were asked"):
        problems(task, "train", 9, seed=0)


def test_unknown_split_is_named() -> None:
    with pytest.raises(ConfigError, match=r"'dev'.*train, validation, test"):
        problems(make_task("parity"), "dev", 1, seed=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", list(PROCEDURAL))
def test_default_demonstrations_are_right_and_of_their_split(name: str) -> None:
    task = make_task(name)
    for prompt, completion in itertools.islice(task.demonstrations("test", random.Random(0)), 20):
        assert split_of(prompt.uid) == "test"
        assert task.score(completion, prompt).reward == 1.0


@pytest.mark.parametrize("name", list(PROCEDURAL))
def test_task_describes_itself_and_every_setting_for_the_form(name: str) -> None:
    cls = TASKS[name]
    assert cls.name == name
    assert cls.title
    assert cls.description.endswith(".")
    assert cls.checker_version
    schema = cls.Params.model_json_schema()
    assert schema["additionalProperties"] is False
    for field in schema["properties"].values():
        assert field["title"][0].isupper()
        assert field["description"].endswith(".")
        assert "default" in field


def test_unknown_names_are_errors_that_name_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match=r"'countdwn'.*did you mean 'countdown'"):
        make_task("countdwn")
    with pytest.raises(ConfigError, match=r"'operator'.*did you mean 'operators'"):
        make_task("countdown", {"operator": "+"})
    with pytest.raises(ConfigError, match=r"setting 'bits'.*found 1"):
        make_task("parity", {"bits": 1})
    with pytest.raises(ConfigError, match=r"largest .* must be above smallest"):
        make_task("countdown", {"smallest": 9, "largest": 9})


def test_params_of_another_task_are_refused() -> None:
    with pytest.raises(ConfigError, match="ParityParams, expected CountdownParams"):
        TASKS["countdown"](ParityParams())


def test_params_cannot_change_after_the_task_is_made() -> None:
    params: TaskParams = ParityParams()
    with pytest.raises(ValueError, match="frozen"):
        params.bits = 3  # type: ignore[attr-defined]


def test_listing_and_building_tasks_loads_no_heavy_module() -> None:
    code = (
        "import sys; from trainer.data.tasks import PROCEDURAL, TASKS, make_task\n"
        "assert 'trainer.data.tasks.countdown' not in sys.modules, 'tasks must be imported when first asked for'\n"
        "[make_task(name) for name in TASKS]\n"
        "bad = {'torch', 'numpy', 'transformers', 'django'} & set(sys.modules)\n"
        "assert not bad, bad\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
