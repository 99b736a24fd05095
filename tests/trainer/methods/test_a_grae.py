"""A-GRAE: the card's numbers, and what an asymmetric sum does to actions that were not sampled."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trainer.advantages.difficulty import attenuate, blend
from trainer.advantages.groups import group_success, group_zscore

HARD, EASY = [1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]


def shaped(groups: list[list[float]], alpha: float, *, unbiased: bool = True, easy: str = "paper") -> list[list[float]]:
    reward_N = torch.tensor([r for group in groups for r in group], dtype=torch.double)
    ids = [str(i) for i, group in enumerate(groups) for _ in group]
    omega = float(reward_N.mean())
    z_N = group_zscore(reward_N, ids, unbiased=unbiased)
    out_N = attenuate(blend(z_N, group_success(reward_N, ids), omega, easy=easy), min(1.0, omega / alpha))
    return [out_N[[g == str(i) for g in ids]].tolist() for i in range(len(groups))]


@pytest.mark.parametrize(
    ("groups", "options", "expected"),
    [
        ([HARD, EASY], {"alpha": 1.0}, [[0.591504, -0.394336], [0.197168, -1.183008]]),
        ([HARD, EASY], {"alpha": 0.5}, [[1.183008, -0.394336], [0.394336, -1.183008]]),
        ([HARD, EASY], {"alpha": 1.0, "unbiased": False}, [[0.683010, -0.455340], [0.227670, -1.366020]]),
        ([HARD, EASY], {"alpha": 1.0, "easy": "code"}, [[0.749997, -0.499998], [0.538670, -3.232023]]),
        ([HARD, [0.0] * 4], {"alpha": 1.0}, [[0.118159, -0.315090], [0.0, 0.0]]),
        ([EASY, [1.0] * 4], {"alpha": 1.0}, [[0.275703, -0.945269], [0.0, 0.0]]),
    ],
)
def test_advantages_of_two_groups(groups: list[list[float]], options: Any, expected: list[list[float]]) -> None:
    for group, found, (right, wrong) in zip(groups, shaped(groups, **options), expected, strict=True):
        assert found == pytest.approx([right if r else wrong for r in group], abs=5e-6)


def test_a_prompt_weighs_as_the_theorem_says() -> None:
    z_N = group_zscore(torch.tensor(HARD, dtype=torch.double), ["g"] * 4, unbiased=False)
    assert float(z_N.abs().sum()) == pytest.approx(3.464102, abs=1e-5)
    p_N = torch.full((4,), 0.25, dtype=torch.double)
    assert float(blend(z_N, p_N, 1.0, both=1.0).abs().sum()) == pytest.approx(2 * 4 * 0.75**0.5, abs=1e-4)
    assert float(blend(z_N, p_N, 0.0, both=1.0).abs().sum()) == pytest.approx(2 * 4 * 0.25**0.5, abs=1e-4)


def test_what_was_not_sampled_rises_only_under_an_asymmetric_sum() -> None:
    """Δh_b = η(1{b sampled}·A_b − C·π_b), C = Σ A: a softmax bandit of 50 arms, group [1, 0, 0, 0]."""
    pi = torch.softmax(torch.linspace(0, 2, 50, dtype=torch.double), 0)
    reward_N = torch.tensor(HARD, dtype=torch.double)
    z_N = group_zscore(reward_N, ["g"] * 4)
    low_N = attenuate(blend(z_N, group_success(reward_N, ["g"] * 4), 0.25), 0.25)
    unsampled = torch.arange(50) >= 4

    def change(advantage_N: torch.Tensor) -> torch.Tensor:
        push = torch.zeros(50, dtype=torch.double)
        push[:4] = advantage_N
        return push - advantage_N.sum() * pi

    assert change(z_N)[unsampled].abs().max() < 1e-6
    assert (change(low_N)[unsampled] > 0).all()
