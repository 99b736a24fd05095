"""Countdown: checker, chance line, demonstrations."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trainer.core.errors import ConfigError
from trainer.core.types import Message, Prompt
from trainer.data.task import problems, split_of
from trainer.data.tasks.countdown import Countdown, CountdownParams


def problem(numbers: list[int], target: int) -> Prompt:
    text = f"{' '.join(map(str, numbers))}={target}:"
    meta = {"numbers": numbers, "target": target}
    return Prompt("0" * 16, (Message("user", text),), str(target), "countdown", meta)


def pass_at(k: int, prompts: list[Prompt]) -> float:
    return sum(1 - (1 - p.meta["chance"]) ** k for p in prompts) / len(prompts)


@pytest.mark.parametrize(
    ("completion", "reward", "answer", "canonical"),
    [
        ("3*7+11+50", 1.0, "82", "50+7*3+11"),
        (" 50 + 11 + 7*3\n", 1.0, "82", "50+7*3+11"),
        ("(50+(11+(7*3)))", 1.0, "82", "50+7*3+11"),
        ("3+7+11+50", 0.0, "71", "50+11+7+3"),
        ("3-7-11-50", 0.0, "-65", "-(50+11+7-3)"),
    ],
)
def test_admissible_expressions_get_value_and_canonical_form(
    completion: str, reward: float, answer: str, canonical: str
) -> None:
    verdict = Countdown().score(completion, problem([3, 7, 11, 50], 82))
    assert (verdict.reward, verdict.answer, verdict.canonical) == (reward, answer, canonical)


@pytest.mark.parametrize(
    "completion",
    ["82", "", "3*7+11+50=82", "3*7+11", "3*7+11+50+0", "3*7+11+50*1", "7*3+11+5 0", "3*7+11+50.", "3*7+11--50",
     "3*7+11+50 x", "50+11+7*3)", "03*7+11+50", "3*7+11+50/1"],
)  # fmt: skip
def test_anything_but_the_given_numbers_once_each_is_no_answer(completion: str) -> None:
    verdict = Countdown().score(completion, problem([3, 7, 11, 50], 82))
    assert (verdict.reward, verdict.answer, verdict.canonical) == (0.0, None, None)


def test_equal_numbers_must_occur_as_often_as_given() -> None:
    task, prompt = Countdown(), problem([3, 3, 7, 7], 42)
    assert task.score("3*7+3*7", prompt).reward == 1.0
    assert task.score("3*7*(7-3-3+1)", prompt).answer is None
    assert task.score("7*7-7*3/3", prompt).answer is None


def test_division_counts_only_where_allowed_and_even() -> None:
    prompt = problem([2, 6, 8, 9], 20)
    with_division = Countdown(CountdownParams(operators="/+*-"))
    assert with_division.score("8*9/6+2", prompt).answer == "14"
    assert with_division.score("8/6*9+2", prompt).answer is None  # 8/6 is not an integer
    assert with_division.score("9/(8-6-2)", prompt).answer is None  # division by zero
    assert Countdown().score("8*9/6+2", prompt).answer is None


@pytest.mark.parametrize(("numbers", "limit"), [(4, 0.006), (5, 0.004), (3, 0.05)])
def test_every_problem_respects_the_default_chance_filter(numbers: int, limit: float) -> None:
    task = Countdown(CountdownParams(numbers=numbers))
    rng = random.Random(7)
    chances = [task.generate(rng).meta["chance"] for _ in range(40)]
    assert all(0 < chance <= limit for chance in chances)


def test_chance_is_the_share_of_all_random_expressions_that_score() -> None:
    # All 4! orders × 5 shapes × 27 operator choices, written out and scored by the checker.
    task = Countdown()
    prompt = task.generate(random.Random(3))
    shapes = ["((a.b).c).d", "(a.(b.c)).d", "(a.b).(c.d)", "a.((b.c).d)", "a.(b.(c.d))"]
    total = right = 0
    for order in itertools.permutations(prompt.meta["numbers"]):
        for shape in shapes:
            for ops in itertools.product("+-*", repeat=3):
                left_ops, names = iter(ops), dict(zip("abcd", order, strict=True))
                text = "".join(next(left_ops) if c == "." else str(names.get(c, c)) for c in shape)
                total += 1
                right += task.score(text, prompt).reward == 1.0
    assert total == 3240
    assert prompt.meta["chance"] == right / total > 0


@pytest.mark.parametrize("min_solutions", [1, 2])
def test_chance_line_of_200_default_test_problems_stays_below_a_quarter_at_64(min_solutions: int) -> None:
    prompts = problems(Countdown(CountdownParams(min_solutions=min_solutions)), "test", 200, seed=0)
    assert len({p.uid for p in prompts}) == 200
    assert 0.001 < pass_at(1, prompts) < 0.006
    assert 0.1 < pass_at(64, prompts) < 0.25


def test_three_numbers_are_too_easy_for_the_chance_line() -> None:
    prompts = problems(Countdown(CountdownParams(numbers=3, max_chance=1)), "test", 100, seed=0)
    assert pass_at(64, prompts) > 0.8


def test_problem_text_shows_rising_numbers_and_the_target() -> None:
    prompt = Countdown().generate(random.Random(0))
    numbers, target = prompt.meta["numbers"], prompt.meta["target"]
    assert numbers == sorted(numbers)
    assert prompt.text == f"{' '.join(map(str, numbers))}={target}:"
    assert prompt.answer == str(target)


def test_order_of_the_numbers_does_not_change_the_identity() -> None:
    task = Countdown()
    prompt = task.generate(random.Random(0))
    other = task.perturb(prompt, random.Random(1))
    assert other.text != prompt.text
    assert other.uid == prompt.uid
    assert other.meta["chance"] == prompt.meta["chance"]


def test_oracle_reaches_every_solution_about_equally_often() -> None:
    task = Countdown(CountdownParams(min_solutions=3))
    prompt = task.generate(random.Random(5))
    rng = random.Random(0)
    counts: dict[str | None, int] = {}
    for _ in range(900):
        verdict = task.score(task.oracle(prompt, rng), prompt)
        assert verdict.reward == 1.0
        counts[verdict.canonical] = counts.get(verdict.canonical, 0) + 1
    assert len(counts) >= 3
    assert max(counts.values()) < 1.5 * min(counts.values())


def test_ordered_arrangement_writes_each_solution_in_one_way() -> None:
    free, ordered = Countdown(), Countdown(CountdownParams(arrangement="ordered"))
    prompt = free.generate(random.Random(2))
    rng = random.Random(0)
    written = {ordered.oracle(prompt, rng) for _ in range(60)}
    assert written == {free.score(text, prompt).canonical for text in written}
    assert len({free.oracle(prompt, rng) for _ in range(60)}) > len(written)


def test_demonstrations_are_right_seeded_and_of_their_split() -> None:
    task = Countdown()
    rows = list(itertools.islice(task.demonstrations("validation", random.Random(4)), 300))
    again = list(itertools.islice(task.demonstrations("validation", random.Random(4)), 300))
    assert rows == again
    assert {split_of(prompt.uid) for prompt, _ in rows} == {"validation"}
    assert all(task.score(text, prompt).reward == 1.0 for prompt, text in rows)
    assert len({prompt.uid for prompt, _ in rows}) > 250
    neighbours = itertools.pairwise(rows)
    assert sum(a.meta["numbers"] == b.meta["numbers"] for (a, _), (b, _) in neighbours) < 15


def test_demonstrations_draw_targets_like_the_problems_do() -> None:
    # The pool must not favour small or large targets: its mean is that of generate within sampling noise.
    task = Countdown()
    rng = random.Random(8)
    drawn = [task.generate(rng).meta["target"] for _ in range(1500)]
    shown = [p.meta["target"] for p, _ in itertools.islice(task.demonstrations("train", rng), 1500)]
    assert abs(sum(drawn) / 1500 - sum(shown) / 1500) < 4


def test_impossible_settings_say_which_setting_to_change() -> None:
    task = Countdown(CountdownParams(max_chance=1e-9))
    with pytest.raises(ConfigError, match="max_chance"):
        task.generate(random.Random(0))


@pytest.mark.parametrize(
    "bad",
    [
        {"numbers": 2},
        {"numbers": 6},
        {"operators": "+^"},
        {"operators": "++"},
        {"operators": ""},
        {"smallest": 20, "largest": 20},
        {"target_min": 50, "target_max": 49},
        {"max_chance": 0},
        {"colour": "red"},
    ],
)
def test_settings_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CountdownParams(**bad)


def test_operators_are_kept_in_one_order() -> None:
    assert CountdownParams(operators="*+-") == CountdownParams(operators="-*+")


@given(st.text(alphabet="0123456789+-*/() ", max_size=24))
def test_reward_is_one_only_for_the_value_of_the_target(completion: str) -> None:
    prompt = problem([1, 2, 3], 7)
    verdict = Countdown(CountdownParams(numbers=3)).score(completion, prompt)
    assert (verdict.answer is None) == (verdict.canonical is None)
    if verdict.answer is not None:
        assert str(eval(completion.strip())) == verdict.answer
    assert verdict.reward == (1.0 if verdict.answer == "7" else 0.0)
