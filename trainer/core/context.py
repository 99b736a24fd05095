"""What the loop hands to every part: the run's fixed things, the changing state, and where numbers go."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trainer.contract.config import EvaluateConfig, RlConfig, SftConfig
from trainer.core.rng import python_rng
from trainer.core.state import TrainState

if TYPE_CHECKING:
    from trainer.core.types import Group, Prompt
    from trainer.data.task import Task
    from trainer.loop.emitter import EventWriter
    from trainer.policy.load import Policy
    from trainer.rollout.sampler import Sampler


@dataclass
class Context:
    """``draw_pool`` makes the training split when it is first used, so that the first evaluation need not wait for it;
    ``metrics`` collects the iteration's numbers (means, ready to log); ``groups`` are the iteration's groups as they were
    rolled out."""

    config: RlConfig | SftConfig | EvaluateConfig
    task: Task
    draw_pool: Callable[[], list[Prompt]]
    state: TrainState
    sampler: Sampler
    emit: EventWriter
    should_stop: Callable[[], bool]
    scope: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)
    _tallies: dict[str, list[float]] = field(default_factory=dict)

    @cached_property
    def pool(self) -> list[Prompt]:
        """The training split."""
        return self.draw_pool()

    @property
    def policy(self) -> Policy:
        """The policy in training."""
        return self.state.policies["policy"].policy

    @property
    def iteration(self) -> int:
        """The iteration being worked on: one more than those completed."""
        return self.state.counters.iteration + 1

    def rng(self, purpose: str, *more: Any) -> random.Random:
        """A generator that depends on the run's seed, the scope, the purpose and the iteration only."""
        return python_rng(self.config.seed, self.scope, purpose, self.iteration, *more)

    def tally(self, key: str, numerator: float, denominator: float) -> None:
        """Adds to a ratio that is formed over the whole iteration, so that micro-batches don't change it."""
        sums = self._tallies.setdefault(key, [0.0, 0.0])
        sums[0] += numerator
        sums[1] += denominator

    def tallied(self, key: str) -> float:
        """The ratio so far; 0 where nothing was tallied."""
        numerator, denominator = self._tallies.get(key, [0.0, 0.0])
        return numerator / denominator if denominator else 0.0

    def collect(self) -> dict[str, float]:
        """The iteration's numbers, tallies divided (0/0 is NaN: undefined); empties both."""
        out = dict(self.metrics)
        out.update({k: n / d if d else float("nan") for k, (n, d) in self._tallies.items()})
        self.metrics.clear()
        self._tallies.clear()
        return out
