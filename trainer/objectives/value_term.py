"""The value head's loss as a part of the step."""

from __future__ import annotations

from trainer.contract.algorithm import AlgorithmSection
from trainer.core.context import Context
from trainer.core.slots import Scores, Term
from trainer.core.types import Batch
from trainer.objectives.value import explained_variance, value_loss
from trainer.policy.heads import VALUE


class ValueTerm:
    """Reads the columns ``old_value`` and ``returns`` (N, T) and the head's output; a token mean."""

    needs = frozenset({f"old_{VALUE}"})

    def __init__(self, algorithm: AlgorithmSection) -> None:
        self.a = algorithm

    def prepare(self, batch: Batch, ctx: Context) -> None:
        """Notes how well the values of before the step predict the returns."""
        columns = batch.columns
        found = explained_variance(columns[f"old_{VALUE}"], columns["returns"], batch.mask_NT)
        ctx.metrics["value/explained_variance"] = found

    def terms(self, micro: Batch, scores: Scores, ctx: Context) -> list[Term]:
        """½·max of the plain and the clipped square, times the coefficient."""
        old, returns = micro.columns[f"old_{VALUE}"], micro.columns["returns"]
        loss, clipped = value_loss(scores.heads[VALUE], old, returns, self.a.value_clip)
        trained = micro.mask_NT > 0
        count = float(trained.sum())
        ctx.tally("value/loss", float(loss.detach()[trained].double().sum()), count)
        ctx.tally("value/clip_ratio", float((clipped & trained).sum()), count)
        return [Term("value", loss, self.a.value_coef, "token-mean")]
