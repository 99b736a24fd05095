"""HeaPA: the card's numbers, its edges, and a pool that shrinks, grows and comes back in a run."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.contract.exit_codes import ExitCode
from trainer.curricula.heap import Pool, adjusted, path_weights, refreshed
from trainer.data.task import split_of
from trainer.data.tasks import make_task
from trainer.testing.replay import story_of

LOW, HIGH = (-1.0, -0.5, -0.2, 0.0), (0.1, 0.4, 0.7, 1.0)


def pool(*, most: int = 8) -> Pool:
    return Pool([(r, f"{r}") for r in LOW], [(r, f"{r}") for r in HIGH], most=most)


def rewards(side: list[tuple[float, str]]) -> list[float]:
    return [r for r, _ in side]


def test_candidates_come_from_the_border_alternately() -> None:
    found = pool()
    assert rewards(found.candidates(4)) == [0.1, 0.0, 0.4, -0.2]
    chosen = found.chosen(2, random.Random(0))
    assert len(set(chosen)) == 2
    assert set(chosen) <= {"0.1", "0.0", "0.4", "-0.2"}
    assert (rewards(found.low), rewards(found.high)) == (list(LOW), list(HIGH))


def test_a_full_pool_throws_the_hardest_out() -> None:
    found = pool()
    assert found.insert("new", 0.3) == "-1.0"
    assert (rewards(found.low), rewards(found.high)) == ([-0.5, -0.2, 0.0], [0.1, 0.3, 0.4, 0.7, 1.0])
    found = pool()
    assert found.insert("new", -0.9) == "-1.0"
    assert rewards(found.low) == [-0.9, -0.5, -0.2, 0.0]


def test_a_pool_with_room_keeps_all() -> None:
    found = pool(most=9)
    assert found.insert("new", 0.3) is None
    assert len(found) == 9


@pytest.mark.parametrize(
    ("value", "difficulty", "expected"), [(0.5, 1.25, 0.4), (-0.5, 1.25, -0.625), (0.5, 0.8, 0.625)]
)
def test_rewards_are_adjusted_for_difficulty(value: float, difficulty: float, expected: float) -> None:
    assert adjusted(value, difficulty) == pytest.approx(expected)
    assert adjusted(value, 0) == value


FAMILY = {"u": 0.2, "c1": 0.6, "c2": -0.2, "l1": 0.0, "l2": 0.3, "l3": 0.6}
CHILDREN = {"u": ["c1", "c2"], "c2": ["l1", "l2", "l3"]}


@pytest.mark.parametrize(("mode", "top"), [("path", 0.19), ("child", 0.26), ("none", 0.2)])
def test_rewards_are_carried_up(mode: str, top: float) -> None:
    found = refreshed(FAMILY, CHILDREN, {"c2": 1.25}, mode=mode)  # type: ignore[arg-type]
    assert found["u"] == pytest.approx(top)
    assert found["c2"] == pytest.approx(-0.2 if mode == "none" else 0.05)
    assert [found[leaf] for leaf in ("c1", "l1", "l2", "l3")] == [0.6, 0.0, 0.3, 0.6]


def test_what_is_fixed_keeps_its_reward_and_still_counts() -> None:
    found = refreshed(FAMILY, CHILDREN, {"c2": 1.25}, mode="path", fixed={"c2"})
    assert found["c2"] == -0.2
    assert found["u"] == pytest.approx(0.5 * 0.2 + 0.5 * (0.25 * 0.6 + 0.75 * -0.25))


def test_a_parent_without_a_reward_takes_its_childrens() -> None:
    found = refreshed({**FAMILY, "u": None}, CHILDREN, {"c2": 1.25}, mode="path")
    assert found["u"] == pytest.approx(0.18)
    assert refreshed({"u": 0.2, "c": None}, {"u": ["c"]}, {}, mode="path")["u"] == 0.2


def test_weights_by_leaves() -> None:
    assert path_weights([1, 3]) == pytest.approx([0.25, 0.75])
    assert path_weights([1, 3], 2) == pytest.approx([0.366025, 0.633975], abs=1e-6)


def test_small_empty_and_cold_pools() -> None:
    three = Pool([(0.0, "a")], [(0.5, "b")], ["c"])
    assert sorted(three.chosen(5, random.Random(0))) == ["a", "b", "c"]
    assert Pool().chosen(5, random.Random(0)) == []
    assert Pool(cold=["z", "a", "m"]).chosen(2, random.Random(0)) == ["z", "a"]


@given(st.lists(st.floats(-1, 1), max_size=40), st.integers(1, 20))
def test_the_sides_stay_in_order_and_within_the_size(values: list[float], most: int) -> None:
    found = Pool(most=most)
    gone = [found.insert(str(i), value) for i, value in enumerate(values)]
    assert len(found) == min(most, len(values)) == len(values) - sum(uid is not None for uid in gone)
    both = [*rewards(found.low), *rewards(found.high)]
    assert both == sorted(both)
    assert abs(len(found.low) - round(0.5 * len(both))) <= 1


@pytest.mark.parametrize(
    ("name", "params"), [("mod_chain", {}), ("countdown", {"numbers": 3}), ("countdown", {"min_solutions": 2})]
)
def test_variants_are_problems_of_the_task(name: str, params: dict[str, int]) -> None:
    task, rng = make_task(name, params), random.Random(0)
    made = [task.variant(task.generate(rng), rng) for _ in range(40)]
    found = [p for p in made if p is not None]
    assert len(found) > 3
    for prompt in found:
        assert task.score(task.oracle(prompt, rng), prompt).reward == 1.0
        assert len(prompt.text) <= task.max_prompt_chars


@pytest.mark.parametrize("augment", [True, False])
def test_a_run_uses_its_pool_up_and_takes_it_back(augment: bool, run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    asked = document(
        methods=[{"slug": "heapa", "params": {"augment": augment}}],
        algorithm={"preset": "grpo", "prompts_per_iteration": 8, "num_generations": 4},
        budget={"iterations": 6},
    )
    assert run(asked, tmp_path / "r") == ExitCode.FINISHED
    found = story_of(tmp_path / "r").scalars
    assert found[1, "heapa/cold"] == 16
    back = [found[i, "heapa/reinserted"] for i in range(1, 7)]
    if augment:
        assert (found[1, "heapa/aug_accepted"] or 0) > 0
        assert any(found[i, "heapa/variant_share"] for i in range(4, 7))
    else:
        assert back[2] == 24  # 3 × 8 prompts: the pool is empty
        assert found[3, "heapa/pool_size"] == 24


def test_no_variant_is_a_problem_of_another_split(run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    asked = document(
        methods=[{"slug": "heapa", "params": {"variants": 8}}],
        algorithm={"preset": "grpo", "prompts_per_iteration": 8, "num_generations": 2},
        budget={"iterations": 6},
        save_rollouts_every=1,
    )
    assert run(asked, tmp_path / "r") == ExitCode.FINISHED
    trained = {g["uid"] for groups in story_of(tmp_path / "r").rollouts.values() for g in groups}
    assert len(trained) > 24
    assert {split_of(uid) for uid in trained} == {"train"}
