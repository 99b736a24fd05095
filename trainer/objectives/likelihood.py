"""Maximum likelihood of the trained tokens: self-training on what a transform has let through."""

from __future__ import annotations

from trainer.core.context import Context
from trainer.core.slots import Scores, Term
from trainer.core.types import Batch


class Likelihood:
    """−log π, mean over all trained tokens."""

    needs: frozenset[str] = frozenset()

    def prepare(self, batch: Batch, ctx: Context) -> None:
        """Nothing to prepare."""

    def terms(self, micro: Batch, scores: Scores, ctx: Context) -> list[Term]:
        """One token-level term."""
        return [Term("likelihood", -scores.logprobs_NT, 1.0, "token-mean")]
