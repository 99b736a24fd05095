"""Advantages that don't fade as a prompt is mastered. Source: MCPO, arXiv 2604.16972, Eq. 12–14."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trainer.advantages.groups import group_success
from trainer.core.context import Context
from trainer.core.types import Batch
from trainer.objectives.hinge_kl import MASTERED

if TYPE_CHECKING:
    from trainer.contract.config import RlConfig
    from trainer.methods.mcpo import McpoParams

SOLVED = 1 - 1e-6
"""A group whose success rate reaches this is mastered."""


def consolidated(advantage_N: torch.Tensor, success_N: torch.Tensor, *, centred: bool = False) -> torch.Tensor:
    """A / 2√(p(1−p)) for groups with ½ < p < 1, (N,); the others as they are.

    With a z-score over the population std the query weight mean|A|/2 is then ½ for all of them. ``centred``: the advantages
    are not divided by a std; dividing by 4p(1−p) keeps their weight at ¼.
    """
    most = (success_N > 0.5) & (success_N < SOLVED)
    weight = 4 * success_N * (1 - success_N)
    return torch.where(most, advantage_N / torch.where(most, weight if centred else weight.sqrt(), 1.0), advantage_N)


class Consolidated:
    """Keeps the weight of prompts that are mostly solved, and marks the tokens of mastered ones for the hinged KL."""

    def __init__(self, params: McpoParams, config: RlConfig) -> None:
        self.p = params
        self.centred = params.form == "constant" or (
            params.form == "auto" and config.algorithm.advantage == "group_mean"
        )

    def shape(self, advantage: torch.Tensor, batch: Batch, ctx: Context) -> torch.Tensor:
        """(N,) → (N,); fills the column ``mask/mastered`` (N, T)."""
        success_N = group_success(batch.outcome_N, batch.group_ids)
        mastered_N = success_N >= SOLVED
        batch.columns[MASTERED] = batch.on_policy_NT * mastered_N[:, None]
        shaped = advantage.double()
        if self.p.reweight:
            shaped = consolidated(shaped, success_N, centred=self.centred)
        self._tell(shaped, batch, success_N.tolist(), ctx)
        return shaped.to(advantage.dtype)

    def _tell(self, shaped_N: torch.Tensor, batch: Batch, success: list[float], ctx: Context) -> None:
        rate = dict(zip(batch.group_ids, success, strict=True))
        for p in rate.values():
            ctx.tally("mcpo/mastered_fraction", float(p >= SOLVED), 1.0)
            ctx.tally("mcpo/majority_fraction", float(0.5 < p < SOLVED), 1.0)
            ctx.tally("mcpo/failed_fraction", float(p == 0), 1.0)
        most = torch.tensor([0.5 < p < SOLVED for p in success])
        ctx.tally("mcpo/query_weight_majority", float(shaped_N[most].abs().sum()) / 2, float(most.sum()))
        mastered = [s.trajectory.uid for s, p in zip(batch.samples, success, strict=True) if p >= SOLVED]
        ctx.state.memory_of("mcpo")["mastered"] = list(dict.fromkeys(mastered))
