"""The entropy bonus as a part, with a fixed or an adaptive coefficient (TRL's controller)."""

from __future__ import annotations

from trainer.contract.algorithm import AlgorithmSection
from trainer.core.context import Context
from trainer.core.slots import Scores, Term
from trainer.core.types import Batch
from trainer.objectives.token_masks import HIGH_ENTROPY

MEMORY = "entropy"


class EntropyBonus:
    """−c·mean token entropy; always a token mean, over the high-entropy tokens where the policy term has only those.

    With a target the coefficient moves by a step after each optimiser step: up while the entropy of that step was at or
    below the target, down above it; and it is applied only while the entropy of the step before was at or below.
    """

    needs = frozenset({"entropy_gradient"})

    def __init__(self, algorithm: AlgorithmSection) -> None:
        self.a = algorithm
        self._sum = self._tokens = 0.0

    def prepare(self, batch: Batch, ctx: Context) -> None:
        """Nothing to do on the whole batch."""

    def terms(self, micro: Batch, scores: Scores, ctx: Context) -> list[Term]:
        """The bonus; none while an adaptive coefficient isn't applied."""
        narrowed = HIGH_ENTROPY if HIGH_ENTROPY in micro.columns else None
        mask_NT = micro.mask_NT if narrowed is None else micro.mask_NT * micro.columns[narrowed]
        self._sum += float((scores.entropy_NT.detach() * mask_NT).double().sum())
        self._tokens += float(mask_NT.sum())
        return [Term("entropy", scores.entropy_NT, -self.applied(ctx), "token-mean", among=narrowed)]

    def applied(self, ctx: Context) -> float:
        """The coefficient of this step."""
        if self.a.entropy_target is None:
            return self.a.entropy_coef
        memory = ctx.state.memory_of(MEMORY)
        last = memory.get("last")
        held = last is None or last > self.a.entropy_target
        return 0.0 if held else float(memory.get("coef", self.a.entropy_coef))

    def before_step(self, ctx: Context) -> None:
        """A new window."""
        self._sum = self._tokens = 0.0

    def after_step(self, ctx: Context) -> None:
        """Moves an adaptive coefficient on."""
        a = self.a
        if a.entropy_target is None or not self._tokens:
            return
        memory = ctx.state.memory_of(MEMORY)
        coefficient, entropy = float(memory.get("coef", a.entropy_coef)), self._sum / self._tokens
        if entropy <= a.entropy_target:
            coefficient = min(coefficient + a.entropy_step, a.entropy_max)
        else:
            coefficient = max(coefficient - a.entropy_step, a.entropy_min)
        memory.update(coef=coefficient, last=entropy)
        ctx.metrics["entropy_coef"] = coefficient
