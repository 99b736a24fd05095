"""Asymmetric group advantages, which follow the progress of training. Source: A-GRAE, arXiv 2602.05548, Eq. 11–13."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trainer.advantages.groups import group_success
from trainer.core.context import Context
from trainer.core.types import Batch

if TYPE_CHECKING:
    from trainer.contract.config import RlConfig
    from trainer.methods.a_grae import AGraeParams

GUARD = 1e-6


def blend(
    advantage_N: torch.Tensor, success_N: torch.Tensor, hard: float, *, easy: str = "paper", both: float = 0.5
) -> torch.Tensor:
    """both·(hard·Â/√p + (1 − hard)·Â/√(1 − p)), (N,); 0 where the group's success rate p is 0, 1 or unknown.

    With a population std the first part gives a group Σ|A| = G·√(1 − p) per unit of its coefficient, most to hard prompts,
    the second G·√p. ``easy="code"`` divides the second by 1 − √p + 1e-6, as the authors' code does.
    """
    mixed = (success_N > 0) & (success_N < 1)
    p = torch.where(mixed, success_N, 0.5)
    of_easy = (1 - p).sqrt() if easy == "paper" else 1 - p.sqrt() + GUARD
    return torch.where(mixed, both * advantage_N * (hard / p.sqrt() + (1 - hard) / of_easy), 0.0)


def attenuate(advantage_N: torch.Tensor, factor: float) -> torch.Tensor:
    """Positive advantages times ``factor``, the others as they are."""
    return torch.where(advantage_N > 0, advantage_N * factor, advantage_N)


class AsymmetricShaper:
    """Blends towards hard prompts as the mean outcome ω rises, and holds positive advantages down while it is low."""

    def __init__(self, params: AGraeParams, config: RlConfig) -> None:
        self.p = params

    def shape(self, advantage: torch.Tensor, batch: Batch, ctx: Context) -> torch.Tensor:
        """(N,) → (N,). Advantages that differ along a sequence are refused: the rule is about whole answers."""
        if advantage.ndim != 1:
            raise ValueError(f"A-GRAE expects one advantage a sequence (N,), found {tuple(advantage.shape)}")
        p = self.p
        outcome_N = batch.outcome_N
        judged = outcome_N[~torch.isnan(outcome_N)]
        omega = self._smoothed(float(judged.mean().clamp(0, 1)), ctx) if len(judged) else 0.0
        success_N = group_success(outcome_N, batch.group_ids)
        hard = {"blend": omega, "hard": 1.0, "easy": 0.0}.get(p.difficulty)
        shaped = advantage.double()
        if hard is not None:
            shaped = blend(shaped, success_N, hard, easy=p.easy_denominator)
        factor = min(1.0, omega / p.alpha) if p.positives == "progress" else float(p.positives)
        shaped = attenuate(shaped, factor)
        self._tell(shaped, batch, omega, factor, ctx)
        return shaped.to(advantage.dtype)

    def _smoothed(self, omega: float, ctx: Context) -> float:
        memory = ctx.state.memory_of("a-grae")
        if self.p.smoothing:
            omega = self.p.smoothing * memory.get("omega", omega) + (1 - self.p.smoothing) * omega
        memory["omega"] = omega
        return omega

    def _tell(self, shaped_N: torch.Tensor, batch: Batch, omega: float, factor: float, ctx: Context) -> None:
        groups = len(set(batch.group_ids))
        ctx.metrics["agrae/omega"], ctx.metrics["agrae/attenuation"] = omega, factor
        ctx.tally("agrae/adv_sum", float(shaped_N.sum()), groups)
        ctx.tally("agrae/pos_mass", float(shaped_N.clamp(min=0).sum()), groups)
        ctx.tally("agrae/neg_mass", float((-shaped_N).clamp(min=0).sum()), groups)
