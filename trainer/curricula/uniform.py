"""Distinct prompts, uniformly, each iteration on its own."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.core.context import Context
from trainer.core.slots import Draw
from trainer.core.types import Group


class Uniform:
    """Every training problem has the same chance in every iteration."""

    def select(self, count: int, ctx: Context) -> list[Draw]:
        """``count`` distinct prompts."""
        chosen = ctx.rng("curriculum").sample(ctx.pool, count)
        return [Draw(p, 0, count / len(ctx.pool)) for p in chosen]

    def observe(self, groups: Sequence[Group], dropped: Sequence[Group], ctx: Context) -> None:
        """Nothing to learn."""
