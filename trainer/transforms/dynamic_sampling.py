"""Groups whose rollouts are all right or all wrong teach nothing: leave them out, or sample others (DAPO)."""

from __future__ import annotations

from trainer.contract.config import RlConfig
from trainer.core.context import Context
from trainer.core.slots import TransformResult
from trainer.core.types import Group


class DynamicSampling:
    """Keeps groups with a signal; with refilling asks for as many more as are missing, and lets no more than wanted pass:
    the first ones drawn.

    A group has a signal where the outcomes of its trajectories differ, length punishments set aside (range test).
    """

    def __init__(self, config: RlConfig) -> None:
        self.wanted = config.algorithm.prompts_per_iteration
        self.refills = config.algorithm.zero_variance == "refill"

    def apply(self, groups: list[Group], ctx: Context) -> TransformResult:
        """Kept, dropped, and how many groups are missing."""
        kept = [g for g in groups if not g.same_outcome]
        surplus = kept[self.wanted :] if self.refills else []
        kept = kept[: len(kept) - len(surplus)]
        chosen = {id(g) for g in kept}
        dropped = [g for g in groups if id(g) not in chosen]
        return TransformResult(kept, dropped, self.wanted - len(kept) if self.refills else 0)
