"""The strategy bandit against the table of the sps card: RL squeezes, inverse RL spreads, and only while there is something
to spread. A single seed of SPS may end anywhere between the two, so its rows are held against the seeds' range and order."""

from __future__ import annotations

from functools import cache, partial
from statistics import mean
from typing import Any

import pytest

from trainer.testing.bandit import Bandit, inverse_rl, likelihood, train

SEEDS = 5
Row = tuple[float, float, float, float]
SPS: dict[str, dict[str, Any]] = {
    name: {"second": partial(inverse_rl, target=name)}
    for name in ("correct_uniform", "reward_boltzmann", "uniform_distinct")
}
WAYS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "likelihood": {"second": likelihood},
    "entropy .02": {"entropy": 0.02},
    "entropy .1": {"entropy": 0.1},
    "entropy .3": {"entropy": 0.3},
    "k_rl 20": {**SPS["reward_boltzmann"], "k_rl": 20},
    **SPS,
}


@cache
def rows(way: str) -> list[Row]:
    """pass@1, @4, @16 and N₁ of each seed."""
    out = []
    for seed in range(SEEDS):
        bandit = Bandit.make(seed)
        train(bandit, **WAYS[way])
        entropy = -(bandit.p_S * bandit.p_S.clamp(min=1e-300).log()).sum()
        out.append((bandit.pass_at(1), bandit.pass_at(4), bandit.pass_at(16), float(entropy.exp())))
    return out


def means(way: str) -> tuple[float, ...]:
    return tuple(mean(column) for column in zip(*rows(way), strict=True))


def test_the_base_policy() -> None:
    bandits = [Bandit.make(seed) for seed in range(SEEDS)]
    found = [mean(b.pass_at(k) for b in bandits) for k in (1, 4, 16)]
    assert found == pytest.approx([0.300, 0.736, 0.984], abs=0.025)


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("grpo", (0.590, 0.592, 0.595, 1.02)),
        ("likelihood", (0.590, 0.592, 0.596, 1.03)),
        ("entropy .02", (0.590, 0.592, 0.596, 1.03)),
        ("entropy .1", (0.586, 0.592, 0.604, 1.08)),
        ("k_rl 20", (0.587, 0.590, 0.594, 1.0)),
    ],
)
def test_what_collapses_to_the_best_strategy(way: str, expected: Row) -> None:
    assert means(way) == pytest.approx(expected, abs=0.04)


def test_an_entropy_bonus_that_is_strong_enough_spreads_too() -> None:
    found = means("entropy .3")
    assert found[:3] == pytest.approx((0.368, 0.791, 0.982), abs=0.02)
    assert found[3] == pytest.approx(17.7, abs=1.0)


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("correct_uniform", (0.563, 0.637, 0.679, 2.3)),
        ("reward_boltzmann", (0.465, 0.773, 0.923, 7.8)),
        ("uniform_distinct", (0.413, 0.802, 0.973, 12.9)),
    ],
)
def test_the_cards_rows_of_sps_lie_within_the_seeds(way: str, expected: Row) -> None:
    for value, seeds in zip(expected, zip(*rows(way), strict=True), strict=True):
        assert min(seeds) - 0.01 <= value <= max(seeds) + 0.01


def test_the_more_uniform_the_target_the_less_pass_at_1_and_the_more_pass_at_16() -> None:
    ways = ("grpo", "correct_uniform", "reward_boltzmann", "uniform_distinct")

    def at(column: int) -> list[float]:
        return [means(way)[column] for way in ways]

    assert at(0) == sorted(at(0), reverse=True)
    assert at(2) == sorted(at(2))
    assert at(3) == sorted(at(3))


def test_a_phase_that_comes_too_late_has_nothing_left_to_spread() -> None:
    assert means("k_rl 20")[2] < means("reward_boltzmann")[2] - 0.1
