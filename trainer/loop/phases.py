"""The default outer machine: RL all the way."""

from __future__ import annotations

from trainer.core.context import Context
from trainer.core.slots import PhasePlan


class SinglePhase:
    """One phase for the whole run."""

    def plan(self, ctx: Context) -> PhasePlan:
        """The run's own objective."""
        return PhasePlan("rl", "RL")

    def advance(self, ctx: Context) -> None:
        """Counts the iteration."""
        ctx.state.phase.done += 1
