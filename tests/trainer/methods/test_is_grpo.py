"""IS-GRPO: the card's numbers, that it is unbiased, and its draws in a run."""

from __future__ import annotations

import math
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.contract.config import InvalidConfig
from trainer.contract.exit_codes import ExitCode
from trainer.curricula.importance import SpreadSampling, chances, heterogeneity, spread, weight
from trainer.methods import resolve
from trainer.methods.is_grpo import IsGrpoParams
from trainer.testing.replay import story_of

SUCCESS = [0, 0.25, 0.5, 0.9, 1]
SIGMA = [spread(p) for p in SUCCESS]
GRADIENT = [(0, 0), (1, 2), (3, -1), (0.5, 0.5), (0, 0)]


def expectation(q: list[float], most: float = math.inf) -> list[float]:
    return [
        math.fsum(x * weight(x, 5, most) * g[axis] for x, g in zip(q, GRADIENT, strict=True) if x) for axis in (0, 1)
    ]


def test_spreads_and_their_mean() -> None:
    assert pytest.approx([0, 0.433013, 0.5, 0.3, 0], abs=1e-6) == SIGMA
    assert sum(SIGMA) / 5 == pytest.approx(0.246603, abs=1e-6)


def test_without_a_floor_the_weights_are_mean_sigma_over_sigma() -> None:
    q = chances(SIGMA, 0)
    assert q == pytest.approx([0, 0.351183, 0.405511, 0.243306, 0], abs=1e-6)
    found = [weight(x, 5, math.inf) for x in q if x]
    assert found == pytest.approx([0.569504, 0.493205, 0.822008], abs=1e-6)
    assert found == pytest.approx([sum(SIGMA) / 5 / s for s in SIGMA if s])


def test_the_update_is_the_gradient_of_the_whole_pool() -> None:
    assert expectation(chances(SIGMA, 0)) == pytest.approx([0.9, 0.3])
    normalised = [sum(g[axis] / s for g, s in zip(GRADIENT, SIGMA, strict=True) if s) / 5 for axis in (0, 1)]
    assert normalised == pytest.approx([1.995214, 0.857094], abs=1e-6)
    assert normalised[1] / normalised[0] != pytest.approx(1 / 3, abs=0.05)


def test_it_has_the_smaller_second_moment() -> None:
    size = [g[0] ** 2 + g[1] ** 2 for g in GRADIENT]
    assert sum(size) / 5 == pytest.approx(3.1)
    q = chances(SIGMA, 0)
    assert sum(x * weight(x, 5, math.inf) ** 2 * s for x, s in zip(q, size, strict=True) if x) == pytest.approx(
        1.638115
    )
    assert heterogeneity(SIGMA) == pytest.approx(0.576425, abs=1e-6)


def test_the_floor_draws_every_prompt_and_stays_unbiased() -> None:
    q = chances(SIGMA, 0.1)
    assert q == pytest.approx([0.02, 0.336064, 0.38496, 0.238976, 0.02], abs=1e-6)
    assert [weight(x, 5, 10) for x in q] == pytest.approx([10, 0.595124, 0.519535, 0.836905, 10], abs=1e-6)
    assert expectation(q) == pytest.approx([0.9, 0.3])


def test_a_weighted_advantage_is_the_normalised_one_times_the_mean_spread() -> None:
    centred = [0.75, -0.25, -0.25, -0.25]
    found = [0.569504 * a for a in centred]
    assert found == pytest.approx([0.427128, *[-0.142376] * 3], abs=1e-6)
    assert found == pytest.approx([sum(SIGMA) / 5 * a / SIGMA[1] for a in centred], abs=1e-6)


def test_prompts_that_spread_alike_are_drawn_alike() -> None:
    assert heterogeneity([0.5] * 3) == pytest.approx(1)
    assert [weight(x, 3, 10) for x in chances([0.5] * 3, 0.1)] == pytest.approx([1, 1, 1])
    assert chances([0.0, 0.0], 0.1) == [0.5, 0.5]
    assert math.isnan(heterogeneity([0.0, 0.0]))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.floats(0.01, 1))
def test_chances_add_up_and_none_is_below_the_floor(success: list[float], floor: float) -> None:
    q = chances([spread(p) for p in success], floor)
    assert math.fsum(q) == pytest.approx(1)
    assert min(q) >= floor / len(q) - 1e-12


def drawn(table: dict[str, list[float]], count: int, seed: int = 0) -> list[Any]:
    pool = [SimpleNamespace(uid=f"p{i}") for i in range(4)]
    state = SimpleNamespace(memory_of=lambda name: {"posteriors": table})
    rng = random.Random(seed)
    ctx: Any = SimpleNamespace(pool=pool, state=state, rng=lambda *purpose: rng, metrics={}, drawn=[])
    return SpreadSampling(IsGrpoParams(floor=0.1), None).select(count, ctx)  # type: ignore[arg-type]


def test_draws_follow_what_earlier_visits_showed() -> None:
    draws = drawn({"p0": [1e6, 1.0], "p1": [1.0, 1e6]}, 4000)
    often = {uid: sum(d.prompt.uid == uid for d in draws) / 4000 for uid in ("p0", "p1", "p2", "p3")}
    assert often["p0"] == pytest.approx(0.025, abs=0.01)
    assert often["p2"] == pytest.approx(0.475, abs=0.04)
    assert {d.prompt.uid: d.probability / 4000 for d in draws}["p3"] == pytest.approx(0.475, abs=1e-3)
    assert len({(d.prompt.uid, d.ordinal) for d in draws}) == 4000


def test_a_batch_may_be_larger_than_the_pool() -> None:
    assert len(drawn({}, 9)) == 9


def test_a_run_remembers_its_visits(run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    asked = document(
        methods=[{"slug": "is-grpo"}],
        algorithm={"preset": "dr-grpo", "prompts_per_iteration": 8, "num_generations": 4},
        budget={"iterations": 3},
    )
    assert run(asked, tmp_path / "r") == ExitCode.FINISHED
    found = story_of(tmp_path / "r").scalars
    assert found[1, "isgrpo/kappa"] == pytest.approx(1)  # nothing is known yet
    assert found[1, "isgrpo/weight_max"] == pytest.approx(1)
    assert (found[3, "isgrpo/kappa"] or 1) < 1
    assert (found[3, "isgrpo/weight_max"] or 0) > 1


def test_dropping_groups_is_refused(document) -> None:  # type: ignore[no-untyped-def]
    asked = document(methods=[{"slug": "is-grpo"}], algorithm={"preset": "dr-grpo", "zero_variance": "drop"})
    with pytest.raises(InvalidConfig, match=r"algorithm\.zero_variance"):
        resolve(asked)


def test_a_base_that_divides_by_the_std_is_refused(document) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidConfig, match="IS-GRPO runs over"):
        resolve(document(methods=[{"slug": "is-grpo"}], algorithm={"preset": "grpo"}))
