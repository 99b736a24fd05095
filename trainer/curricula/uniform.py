"""Distinct prompts, uniformly, each iteration on its own."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.core.context import Context
from trainer.core.slots import Draw
from trainer.core.types import Group


class Uniform:
    """Every training problem has the same chance in every iteration."""

    def select(self, count: int, ctx: Context) -> list[Draw]:
        """``count`` distinct prompts, others than those drawn so far; as many as there are."""
        taken = {d.prompt.uid for d in ctx.drawn}
        left = [p for p in ctx.pool if p.uid not in taken] if taken else ctx.pool
        rng = ctx.rng("curriculum", len(taken)) if taken else ctx.rng("curriculum")
        chosen = rng.sample(left, count if not taken else min(count, len(left)))
        return [Draw(p, 0, count / len(ctx.pool)) for p in chosen]

    def observe(self, groups: Sequence[Group], dropped: Sequence[Group], ctx: Context) -> None:
        """Nothing to learn."""
