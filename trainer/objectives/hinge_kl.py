"""A KL to the policy that sampled, silent within a budget, on prompts that are mastered. Source: MCPO, arXiv 2604.16972,
Eq. 7–11."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from trainer.core.context import Context
from trainer.core.slots import Scores, Term
from trainer.core.types import Batch
from trainer.objectives.kl import LIMIT

if TYPE_CHECKING:
    from trainer.contract.config import RlConfig
    from trainer.methods.mcpo import McpoParams

MASTERED = "mask/mastered"
"""The column with 1 on the sampled, trained tokens of mastered prompts."""


def k3(drift: torch.Tensor) -> torch.Tensor:
    """e^d − d − 1, with d held to ±20."""
    d = drift.clamp(-LIMIT, LIMIT)
    return d.exp() - d - 1


def hinge(drift: torch.Tensor, budget: float) -> torch.Tensor:
    """φ(d): 0 for |d| ≤ δ; k3(d) − k3(δ) above, k3(d) − k3(−δ) below. Continuous; its gradient outside is e^d − 1."""
    border = torch.where(drift > 0, math.exp(budget) - budget - 1, math.exp(-budget) + budget - 1)
    return torch.where(drift.abs() > budget, k3(drift) - border, 0.0)


class HingeKl:
    """β times the mean of φ over mastered prompts' answers, each a mean over its tokens; drift is log π − log π_old."""

    needs = frozenset({"old_logprobs", "advantage"})

    def __init__(self, params: McpoParams, config: RlConfig) -> None:
        self.p = params

    def prepare(self, batch: Batch, ctx: Context) -> None:
        """Nothing: the advantage part has marked the tokens."""

    def terms(self, micro: Batch, scores: Scores, ctx: Context) -> list[Term]:
        """One token-level term over the answers of mastered prompts (``norm`` "batch": over all)."""
        mask = micro.columns[MASTERED]
        drift = torch.where(mask > 0, scores.logprobs_NT - micro.columns["old_logprobs"], 0.0)
        value = hinge(drift, self.p.budget)
        size, count = drift.detach().abs(), float(mask.sum())
        ctx.tally("mcpo/hkl", float(value.detach().sum()), count)
        ctx.tally("mcpo/hinge_active_fraction", float((size > self.p.budget).sum()), count)
        ctx.tally("mcpo/mean_abs_drift_mastered", float(size.sum()), count)
        among = MASTERED if self.p.norm == "mastered" else None
        return [Term("hinge_kl", value, self.p.beta, "seq-mean-token-mean", among=among)]
