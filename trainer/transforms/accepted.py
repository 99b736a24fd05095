"""Self-training's filter: right answers only, and what a method asks of their form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trainer.core.context import Context
from trainer.core.slots import TransformResult
from trainer.core.types import Group, Trajectory


class KeepAccepted:
    """Groups keep their right trajectories that ``accept`` takes; groups without any are dropped."""

    def __init__(self, accept: Callable[[Trajectory], bool]) -> None:
        self.accept = accept

    def apply(self, groups: list[Group], ctx: Context) -> TransformResult:
        """New groups; the given ones stay as they are."""
        kept = [replace(g, trajectories=[t for t in g.trajectories if t.correct and self.accept(t)]) for g in groups]
        dropped = [g for g, k in zip(groups, kept, strict=True) if not k.trajectories]
        return TransformResult([k for k in kept if k.trajectories], dropped)
