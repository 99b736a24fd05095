"""What the loop hands to every part: the run's fixed things, the changing state, and where numbers go."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trainer.contract.config import EvaluateConfig, RlConfig, SftConfig
from trainer.core.rng import python_rng
from trainer.core.state import TrainState
from trainer.core.world import World

if TYPE_CHECKING:
    from trainer.core.slots import Draw
    from trainer.core.types import Group, Prompt
    from trainer.data.task import Task
    from trainer.loop.emitter import EventWriter
    from trainer.policy.load import Policy
    from trainer.rollout.sampler import Sampler

S = TypeVar("S")
T = TypeVar("T")


@dataclass
class Context:
    """``files`` is the storage root, where what a configuration names by a relative path lies; ``draw_pool`` makes the
    training split when it is first used, so that the first evaluation need not wait for it; ``metrics`` collects the
    iteration's numbers (means, ready to log); ``drawn`` and ``groups`` are the iteration's draws and its groups as they were
    rolled out."""

    config: RlConfig | SftConfig | EvaluateConfig
    task: Task
    draw_pool: Callable[[], list[Prompt]]
    state: TrainState
    sampler: Sampler
    emit: EventWriter
    should_stop: Callable[[], bool]
    world: World = field(default_factory=World)
    scope: str = ""
    files: Path = Path(".")
    metrics: dict[str, float] = field(default_factory=dict)
    drawn: list[Draw] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    _ahead: int = 0
    _told: set[str] = field(default_factory=set)
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
        """The iteration being worked on: one more than those completed, or a later one that is being drawn ahead."""
        return self.state.counters.iteration + 1 + self._ahead

    @contextmanager
    def ahead(self, by: int) -> Iterator[None]:
        """Inside, the iteration worked on is ``by`` later, and numbers are apart from those outside."""
        outside = self.metrics, self._tallies
        self.metrics, self._tallies, self._ahead = {}, {}, by
        try:
            yield
        finally:
            (self.metrics, self._tallies), self._ahead = outside, 0

    def rng(self, purpose: str, *more: Any) -> random.Random:
        """A generator that depends on the run's seed, the scope, the purpose and the iteration only."""
        return python_rng(self.config.seed, self.scope, purpose, self.iteration, *more)

    def warn_once(self, text: str) -> None:
        """A warning in the run's log, unless this attempt has said the same already."""
        if text not in self._told:
            self._told.add(text)
            self.emit.log(text, "warning")

    def tally(self, key: str, numerator: float, denominator: float) -> None:
        """Adds to a ratio that is formed over the whole iteration, so that micro-batches don't change it."""
        sums = self._tallies.setdefault(key, [0.0, 0.0])
        sums[0] += numerator
        sums[1] += denominator

    def tallied(self, key: str) -> float:
        """The ratio so far; 0 where nothing was tallied."""
        numerator, denominator = self._tallies.get(key, [0.0, 0.0])
        return numerator / denominator if denominator else 0.0

    def stop_wanted(self) -> bool:
        """Whether any process was asked to stop; each asks at the same place."""
        return any(self.world.together(self.should_stop))

    def shared(self, work: Callable[[], T], *, lockstep: bool = False) -> list[T]:
        """What each process makes of its share, by rank; what is tallied meanwhile is added up. ``lockstep``: the processes
        wait for each other inside ``work``, so that an error in one ends it instead of being raised in all."""
        if self.world.size == 1:
            return [work()]
        outside, self._tallies = self._tallies, {}
        try:
            done = [work()] if lockstep else []
            found = self.world.together(lambda: ((done or [work()])[0], self._tallies))
        finally:
            self._tallies = outside
        for _, tallies in found:
            for key, (numerator, denominator) in tallies.items():
                self.tally(key, numerator, denominator)
        return [result for result, _ in found]

    def spread(self, items: Sequence[S], work: Callable[[S], T]) -> list[T]:
        """``work`` on each item, divided among the processes; all get all results, in the items' order."""
        rank, size = self.world.rank, self.world.size
        parts = self.shared(lambda: [work(item) for item in items[rank::size]])
        return [parts[i % size][i // size] for i in range(len(items))]

    def collect(self) -> dict[str, float]:
        """The iteration's numbers, tallies divided (0/0 is NaN: undefined); empties both."""
        out = dict(self.metrics)
        out.update({k: n / d if d else float("nan") for k, (n, d) in self._tallies.items()})
        self.metrics.clear()
        self._tallies.clear()
        return out
