"""reasoning-gym as a task: each trouble that its users report is excluded by a test."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import math
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed: pip install -r requirements-tasks.txt")

from trainer.core.errors import ConfigError
from trainer.core.types import Prompt
from trainer.data import reasoning_gym as source
from trainer.data.task import SPLITS
from trainer.data.tasks import make_task
from trainer.data.tasks.reasoning_gym import ReasoningGym
from trainer.data.tasks.reasoning_gym_catalogue import LEVELS, OFFERED, UNSOUND, VERSION, WITHOUT_GOLD
from trainer.rewards.gym import GymScorer, Source, is_finite


@pytest.fixture(scope="module")
def scorer() -> Iterator[GymScorer]:
    made = GymScorer()
    yield made
    made.close()


def made(tmp_path: Path | None = None, said: list[str] | None = None, **params: Any) -> ReasoningGym:
    task = make_task("reasoning_gym", params)
    assert isinstance(task, ReasoningGym)
    if tmp_path is not None:
        task.prepare(tmp_path, lambda prompt: None, (said if said is not None else []).append)
    return task


def questions(prompts: list[Prompt]) -> set[str]:
    return {prompt.meta["entry"]["question"] for prompt in prompts}


# The catalogue


def test_the_catalogue_is_that_of_the_installed_package() -> None:
    from reasoning_gym.factory import CURRICULA, DATASETS

    assert importlib.metadata.version("reasoning-gym") == VERSION
    assert set(DATASETS) - {"composite"} == set(LEVELS)
    for name, levels in LEVELS.items():
        attributes = CURRICULA[name]().attributes if name in CURRICULA else {}
        assert max((len(a.levels) for a in attributes.values()), default=0) == levels, name


SLOW = {"sokoban", "knight_swap"}
"""Seconds an item; the curriculum of knight_swap refuses its own lowest level besides."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in OFFERED if n not in SLOW])
def test_every_offered_generators_own_answers_are_right_and_junk_is_wrong(name: str, scorer: GymScorer) -> None:
    items = list(itertools.islice(source.stream(name, 0, {}, seed=1, cache=None), 3))
    for item in items:
        assert (item["answer"] is None) == (name in WITHOUT_GOLD)
        if item["answer"] is not None:
            assert scorer(Source(name, 0), item, item["answer"]) == (True, "reasoning-gym"), item["answer"]
        for junk in ("", "junk", "nan", "inf", "{}", "[]", "0.5e400", "((((", "9" * 5000):
            if junk != item["answer"]:
                assert scorer(Source(name, 0), item, junk)[0] is False, junk


def test_a_level_is_the_generators_curriculum() -> None:
    easy = source.config_of("chain_sum", 0, {}, seed=0, size=1)
    hard = source.config_of("chain_sum", 3, {}, seed=0, size=1)
    assert (easy.max_terms, easy.max_digits) == (2, 1)
    assert (hard.max_terms, hard.max_digits) == (5, 4)
    assert source.config_of("chain_sum", None, {}, seed=0, size=1).max_terms == 6
    assert source.config_of("chain_sum", 0, {"max_terms": 4}, seed=0, size=1).max_terms == 4


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"generator": "coin_flip"}, 'so that \\"0\\" gets full marks|so that "0" gets full marks'),
        ({"generator": "game_of_life_halting"}, "full marks to any text"),
        ({"generator": "chain_sums"}, "chain_sum"),
        ({"generator": "chain_sum", "level": 11}, "levels 0 to 10, found 11"),
        ({"settings": "{min_terms: 2}"}, "is no JSON"),
        ({"settings": "[2]"}, "is a list, expected a JSON object"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_at_launch(params: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make_task("reasoning_gym", params)
    with pytest.raises(ValidationError):
        ReasoningGym.Params(**params)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"settings": '{"min_term": 2}'}, r"chain_sum has no setting 'min_term'; did you mean 'min_terms'"),
        ({"settings": '{"min_terms": 9}'}, r"chain_sum refuses level 0 with the settings \{'min_terms': 9\}"),
        ({"generator": "knight_swap"}, r"knight_swap refuses level 0"),
    ],
)
def test_what_the_generator_refuses_is_said_with_the_setting(tmp_path: Path, params: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        made(tmp_path, **params).draw("train", 1, seed=0)


def test_without_the_package_the_run_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.data.tasks.reasoning_gym.available", lambda: False)
    with pytest.raises(ConfigError, match=r"pip install -r requirements-tasks\.txt"):
        made(tmp_path)


# Seeds and splits


def test_neighbouring_seeds_hold_the_same_items_in_the_package() -> None:
    """The trouble itself: item 1 of a seed is item 0 of the next one."""
    first = source.dataset_of("chain_sum", source.config_of("chain_sum", 3, {}, seed=1, size=64))
    second = source.dataset_of("chain_sum", source.config_of("chain_sum", 3, {}, seed=2, size=64))
    assert first[1]["question"] == second[0]["question"]


@pytest.mark.parametrize("level", [0, 3])
def test_no_question_is_in_two_splits_whatever_the_seeds(tmp_path: Path, level: int) -> None:
    task = made(tmp_path, level=level, settings='{"min_digits": 2, "max_digits": 2}')
    by_split = {
        split: set.union(*(questions(task.draw(split, count, seed=seed)) for seed in (0, 1, 2)))
        for split, count in (("train", 300), ("validation", 40), ("test", 40))
    }
    for one, other in itertools.combinations(SPLITS, 2):
        assert not by_split[one] & by_split[other]


def test_problems_have_distinct_questions_and_longer_lists_begin_with_shorter_ones(tmp_path: Path) -> None:
    task = made(tmp_path, generator="gcd", level=1)
    longer = task.draw("train", 120, seed=4)
    assert len(questions(longer)) == 120
    assert longer[:50] == task.draw("train", 50, seed=4)
    assert longer[:50] != task.draw("train", 50, seed=5)


def test_a_generator_with_too_few_questions_says_how_many_it_has(tmp_path: Path) -> None:
    task = made(tmp_path, settings='{"min_terms": 2, "max_terms": 2}')
    with pytest.raises(
        ConfigError, match=r"chain_sum at these settings has only about 200 questions, \d+ of them in the test"
    ):
        task.draw("test", 100, seed=0)


def test_a_test_set_that_can_be_learnt_by_heart_is_told(tmp_path: Path) -> None:
    said: list[str] = []
    made(tmp_path, said).draw("test", 10, seed=0)
    assert "different questions; for 10 test problems, 200 or more are advisable" in said[0]
    said.clear()
    made(tmp_path, said, level=4).draw("test", 10, seed=0)
    assert said == []


@pytest.mark.parametrize(("pool", "drawn"), [(200, 100), (200, 1000), (5000, 1000)])
def test_the_number_of_questions_is_estimated_from_repeats(pool: int, drawn: int) -> None:
    rng = random.Random(0)
    distinct = len({rng.randrange(pool) for _ in range(drawn)})
    assert source.estimated_questions(drawn, distinct) == pytest.approx(pool, rel=0.25)
    assert source.estimated_questions(10, 10) == math.inf


# Chunks on disk


def test_items_are_kept_on_disk_and_are_the_same_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = made(tmp_path).draw("train", 20, seed=0)
    assert first == made().draw("train", 20, seed=0)
    made_by = source._made
    monkeypatch.setattr(source, "_made", lambda name, config: pytest.fail("made again"))
    assert made(tmp_path).draw("train", 20, seed=0) == first
    monkeypatch.setattr(source, "_made", made_by)
    files = sorted((tmp_path / "cache/reasoning-gym").rglob("*.json"))
    files[0].write_text(files[0].read_text()[:-20])
    assert made(tmp_path).draw("train", 20, seed=0) == first
    assert len(json.loads(files[0].read_text())) == source.CHUNK
    made(tmp_path, level=1).draw("train", 20, seed=0)
    assert len({path.parent for path in (tmp_path / "cache/reasoning-gym").rglob("*.json")}) == 2


# Prompts and answers


def test_the_question_carries_the_instruction_and_the_set_knows_it() -> None:
    task = made()
    prompt = task.generate(random.Random(0))
    assert prompt.text.endswith("\nGive the final answer between <answer> and </answer>.")
    bare = made(instruction="", system="Be brief.")
    again = bare.generate(random.Random(0))
    assert [m.role for m in again.messages] == ["system", "user"]
    assert again.messages[1].content == prompt.meta["entry"]["question"]
    assert again.uid == prompt.uid
    assert bare.checker_version != task.checker_version


def test_only_the_right_answer_counts_wherever_it_may_stand() -> None:
    task = made(generator="chain_sum")
    prompt = task.generate(random.Random(0))
    gold = prompt.answer
    assert gold is not None
    for text in (
        gold,
        f" {gold}\n",
        f"So <answer>{gold}</answer>",
        f"<answer>1{gold}</answer> no, <answer>{gold}</answer>",
    ):
        verdict = task.score(text, prompt)
        assert (verdict.reward, verdict.answer) == (1.0, gold), text
    for text in (
        f"The answer is {gold}",
        f"{gold}0",
        f"<answer>{gold}</answer><answer>x</answer>",
        "",
        "<answer></answer>",
    ):
        verdict = task.score(text, prompt)
        assert verdict.reward == 0.0, text
        assert verdict.answer != gold
    tagged = made(answer_in="tag")
    assert tagged.score(gold, prompt).reward == 0.0
    assert tagged.score(task.oracle(prompt, random.Random(0)), prompt).reward == 1.0


def test_credit_for_text_that_contains_the_answer_is_none(scorer: GymScorer) -> None:
    item = {"question": "?", "answer": "1", "metadata": {}}
    gym = source.dataset_of("gcd", source.config_of("gcd", 0, {}, seed=0, size=1))
    assert 0.4 < gym.score_answer("10", item) < 0.6  # the trouble itself
    assert scorer(Source("gcd", 0), item, "10") == (False, "reasoning-gym")
    assert scorer(Source("gcd", 0), item, "1") == (True, "reasoning-gym")


@pytest.mark.parametrize("answer", ["nan", "NaN", "nan + nanj", "inf", "-Infinity", "1e999", "3.0E+400 - 2i", "inf+0j"])
def test_nan_and_infinity_are_no_answers(answer: str, scorer: GymScorer) -> None:
    assert not is_finite(answer, "3.0 + 2.0i")
    item = next(source.stream("complex_arithmetic", 0, {}, seed=0, cache=None))
    assert scorer(Source("complex_arithmetic", 0), item, answer) == (False, "reasoning-gym: no finite answer")


def test_words_and_numbers_that_only_look_like_infinity_are_answers() -> None:
    for answer in ("banana", "information", "finance", "1e5", "nanny", "x = 3e2"):
        assert is_finite(answer, "")
    assert is_finite("Infinity", "infinity")


@pytest.mark.parametrize("text", ["9" * 20_000, "9." * 10_000, "1e" * 10_000, "nan" * 6_000, "1_" * 10_000])
def test_looking_for_infinity_takes_no_time_whatever_the_text(text: str) -> None:
    began = time.process_time()
    is_finite(text, "1")
    assert time.process_time() - began < 0.5


# Checkers that raise, hang, crash


def test_a_checker_that_raises_costs_the_sample_and_is_named(scorer: GymScorer) -> None:
    item = next(source.stream("prime_factorization", 0, {}, seed=0, cache=None))
    assert scorer(Source("prime_factorization", 0), item, "two times two") == (False, "reasoning-gym: raised")
    assert scorer(Source("prime_factorization", 0), item, item["answer"]) == (True, "reasoning-gym")


def test_a_checker_that_does_not_end_costs_its_seconds_in_any_thread() -> None:
    """simple_equations' checker is fine; polynomial_equations' evaluates what it is given, and this takes for ever."""
    slow = GymScorer(seconds=1.0)
    item = next(source.stream("simple_integration", 0, {}, seed=0, cache=None))
    found: list[tuple[bool, str]] = []

    def ask() -> None:
        found.append(slow(Source("simple_integration", 0), item, "9**9**9**9*X + C"))
        found.append(slow(Source("simple_integration", 0), item, item["answer"]))

    began = time.monotonic()
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    slow.close()
    assert found[0][0] is False
    assert found[0][1] in ("reasoning-gym: out of time", "reasoning-gym: crashed")
    assert found[1] == (True, "reasoning-gym")
    assert time.monotonic() - began < 60


# Fine-tuning


def test_generators_without_gold_answers_are_not_shown_in_fine_tuning() -> None:
    task = made(generator="rush_hour")
    with pytest.raises(ConfigError, match="rush_hour gives no gold answers"):
        next(task.demonstrations("train", random.Random(0)))
    prompt, completion = next(made().demonstrations("train", random.Random(0)))
    assert completion == f"<answer>{prompt.answer}</answer>"
    assert next(made(instruction="").demonstrations("train", random.Random(0)))[1] == prompt.answer


def test_unsound_generators_are_never_offered() -> None:
    assert not set(UNSOUND) & set(OFFERED)
    assert len(OFFERED) == len(LEVELS) - len(UNSOUND)
