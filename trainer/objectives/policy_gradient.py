"""The base row's objective: surrogate, KL to the base, entropy bonus. Which ones is the algorithm section's matter."""

from __future__ import annotations

import torch

from trainer.contract.config import AlgorithmSection
from trainer.core.context import Context
from trainer.core.slots import Scores, Term
from trainer.core.types import Batch
from trainer.objectives.kl import kl_estimate
from trainer.objectives.surrogate import surrogate


class PolicyGradient:
    """Reads the columns ``advantage`` (N, T), ``old_logprobs`` (N, T; left out when the step is on-policy) and, with a KL
    term, ``reference_logprobs`` (N, T)."""

    def __init__(self, algorithm: AlgorithmSection) -> None:
        self.a = algorithm
        self.needs = frozenset({"advantage"} | ({"reference_logprobs"} if algorithm.kl_coef else set()))

    def prepare(self, batch: Batch, ctx: Context) -> None:
        """Nothing to do on the whole batch."""

    def terms(self, micro: Batch, scores: Scores, ctx: Context) -> list[Term]:
        """Token-level terms, reduced as the algorithm says (the entropy bonus is always a token mean)."""
        a, columns = self.a, micro.columns
        old = columns.get("old_logprobs", scores.logprobs_NT.detach())
        loss, ratio = surrogate(
            a.surrogate,
            scores.logprobs_NT,
            old,
            columns["advantage"],
            micro.mask_NT,
            level=a.ratio,
            epsilon=a.epsilon,
            epsilon_high=a.epsilon_high,
            dual_clip=a.dual_clip,
        )
        self._note_clipping(micro, ratio.detach().expand_as(loss), ctx)
        out = [Term("policy", loss, 1.0, a.aggregation)]
        if a.kl_coef:
            kl = kl_estimate(scores.logprobs_NT, columns["reference_logprobs"], a.kl_estimator)
            out.append(Term("kl", kl, a.kl_coef, a.aggregation))
        if a.entropy_coef:
            out.append(Term("entropy", scores.entropy_NT, -a.entropy_coef, "token-mean"))
        return out

    def _note_clipping(self, micro: Batch, ratio_NT: torch.Tensor, ctx: Context) -> None:
        if self.a.surrogate != "clip":
            return
        trained = micro.mask_NT > 0
        advantage = micro.columns["advantage"]
        low = (trained & (advantage < 0) & (ratio_NT < 1 - self.a.epsilon)).sum()
        high = (trained & (advantage > 0) & (ratio_NT > 1 + self.a.epsilon_high)).sum()
        ctx.tally("clip_ratio/low_mean", float(low), float(trained.sum()))
        ctx.tally("clip_ratio/high_mean", float(high), float(trained.sum()))
