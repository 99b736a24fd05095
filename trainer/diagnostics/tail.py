"""Rare correct solutions under group updates: how often a group misses them, and what an update then does to them.

Source: F-GRPO, arXiv 2602.06717: Lemma 3.1 (tail miss), Proposition 3.2 and appendix (one step on a categorical policy).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


def activity(success: float, size: int) -> float:
    """Chance that a group of ``size`` rollouts has a right and a wrong one: 1 − μ^N − (1 − μ)^N."""
    return 1 - success**size - (1 - success) ** size


def tail_miss(success: float, tail: float, size: int) -> float:
    """Chance that a group is active and holds no sample of a correct part of mass τ: (1 − τ)^N − (μ − τ)^N − (1 − μ)^N.

    NaN unless 0 < τ < μ.
    """
    if not 0 < tail < success:
        return math.nan
    # A group of one is never active; the sum of powers would leave rounding.
    return (1 - tail) ** size - (success - tail) ** size - (1 - success) ** size if size > 1 else 0.0


@dataclass(frozen=True)
class Step:
    """A gradient step on logits (A,): their change, the new probabilities (A,), and the change to first order of the
    correct mass and of its part that was not sampled."""

    logits_A: torch.Tensor
    probabilities_A: torch.Tensor
    correct: float
    unsampled_correct: float


def categorical_step(
    p_A: torch.Tensor,
    correct_A: torch.Tensor,
    sampled_A: torch.Tensor,
    *,
    size: int,
    rate: float,
    right: float = 1.0,
    wrong: float = -1.0,
) -> Step:
    """Δz_i = (η/N)·p_i·(R_i − S_R) with R_i = 0 where not sampled and S_R = Σ R_i p_i, for p = softmax(z).

    ``correct_A`` and ``sampled_A`` are boolean. The masses' changes are Σ p_i (Δz_i − Σ p Δz) over their actions
    (Proposition 3.2 in other words).
    """
    reward_A = torch.where(correct_A, right, wrong) * sampled_A
    dz_A = rate / size * p_A * (reward_A - (reward_A * p_A).sum())
    dp_A = p_A * (dz_A - (p_A * dz_A).sum())
    new_A = torch.softmax(p_A.log() + dz_A, 0)
    return Step(dz_A, new_A, float(dp_A[correct_A].sum()), float(dp_A[correct_A & ~sampled_A].sum()))


def retained(start_A: torch.Tensor, now_A: torch.Tensor, correct_A: torch.Tensor) -> float:
    """M_ret = 1 − Σ max(0, π₀ − π) / Σ π₀ over the correct actions: the share of their first mass that is still there."""
    before, after = start_A[correct_A], now_A[correct_A]
    return float(1 - (before - after).clamp(min=0).sum() / before.sum())
