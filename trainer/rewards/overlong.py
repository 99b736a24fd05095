"""DAPO's soft overlong punishment (arXiv 2503.14476): the last tokens before the limit cost more and more."""

from __future__ import annotations

from trainer.contract.config import RlConfig
from trainer.core.context import Context
from trainer.core.types import Group

OVERLONG = "overlong"


def overlong_punishment(length: int, *, limit: int, buffer: int) -> float:
    """0 up to ``limit − buffer`` tokens, then linearly down to −1 at the limit, and −1 beyond."""
    return max(-1.0, min(0.0, (limit - buffer - length) / buffer))


class SoftOverlong:
    """Component ``overlong`` in [−1, 0], weighted by the factor; of the tokens that the policy wrote."""

    shaping = True

    def __init__(self, config: RlConfig) -> None:
        self.limit = config.sampling.max_new_tokens
        self.buffer = config.algorithm.overlong_buffer
        self.weights = {OVERLONG: config.algorithm.overlong_factor}

    def score(self, group: Group, ctx: Context) -> list[dict[str, float | None]]:
        """One dict a trajectory."""
        return [
            {OVERLONG: overlong_punishment(t.sampled_tokens, limit=self.limit, buffer=self.buffer)}
            for t in group.trajectories
        ]
