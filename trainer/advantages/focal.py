"""Focal weights on group advantages: what is mostly solved teaches less. Source: F-GRPO, arXiv 2602.06717, Eq. 11–13."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from trainer.advantages.groups import COLLAPSED, group_success
from trainer.contract.drawn import histogram
from trainer.core.context import Context
from trainer.core.types import Batch
from trainer.diagnostics.tail import tail_miss

if TYPE_CHECKING:
    from trainer.contract.config import RlConfig
    from trainer.methods.f_grpo import FGrpoParams

TAIL = 0.1
"""The rare correct part whose chance to be missed is charted: this share of the success rate."""


def focal_weight(success_N: torch.Tensor, gamma: float) -> torch.Tensor:
    """g = (1 − μ̂)^γ, (N,); 1 everywhere for γ = 0."""
    return (1 - success_N).pow(gamma)


class FocalShaper:
    """Multiplies all advantages of a prompt's rollouts by its focal weight."""

    def __init__(self, params: FGrpoParams, config: RlConfig) -> None:
        self.p = params
        self.size = config.algorithm.num_generations

    def shape(self, advantage: torch.Tensor, batch: Batch, ctx: Context) -> torch.Tensor:
        """(N,) or (N, T) → the same shape. A group without a verdict keeps its advantages, which are 0."""
        success_N = group_success(batch.outcome_N, batch.group_ids, wrong=self.p.wrong, right=self.p.right)
        weight_N = torch.nan_to_num(focal_weight(success_N, self.p.gamma), nan=1.0).to(advantage.dtype)
        shaped = advantage * (weight_N if advantage.ndim == 1 else weight_N[:, None])
        self._tell(advantage, shaped, dict(zip(batch.group_ids, success_N.tolist(), strict=True)), ctx)
        return shaped

    def _tell(self, before: torch.Tensor, after: torch.Tensor, success: dict[str, float], ctx: Context) -> None:
        known = [s for s in success.values() if math.isfinite(s)]
        for s in known:
            weight = (1 - s) ** self.p.gamma
            ctx.tally("fgrpo/g_mean", weight, 1.0)
            mixed = COLLAPSED < s < 1 - COLLAPSED
            ctx.tally("fgrpo/active_fraction", float(mixed), 1.0)
            ctx.tally("fgrpo/g_active_mean", weight * mixed, float(mixed))
            if mixed:
                ctx.tally("fgrpo/tail_miss_est", tail_miss(s, TAIL * s, self.size), 1.0)
        ctx.tally("fgrpo/update_scale", float(after.abs().sum()), float(before.abs().sum()))
        ctx.emit(histogram(ctx.state.axes(iteration=ctx.iteration), "fgrpo/success_hist", known, bins=10, span=(0, 1)))
