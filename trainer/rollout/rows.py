"""Samples under way, shared by the engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trainer.rollout.sampler import Completion, Progress, SamplingStopped


@dataclass
class Row:
    """A sample under way: its context, the key of its random numbers, and what it has so far."""

    context: tuple[int, ...]
    key: int
    first_position: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ended: bool = False

    def completion(self, eos_ids: Sequence[int]) -> Completion:
        """The finished sample."""
        return Completion(self.ids, self.logprobs, "eos" if self.ids[-1] in eos_ids else "length")


class Watch:
    """Stop question and progress of one call."""

    def __init__(self, total: int, on_progress: Progress | None, should_stop: Callable[[], bool] | None) -> None:
        self.total, self.finished = total, 0
        self._on_progress, self._should_stop = on_progress, should_stop

    def check(self) -> None:
        """Raise SamplingStopped if a stop is wanted."""
        if self._should_stop is not None and self._should_stop():
            raise SamplingStopped(f"stopped while sampling: {self.finished} of {self.total} samples were finished")

    def done(self, count: int) -> None:
        """Report ``count`` more finished samples."""
        self.finished += count
        if count and self._on_progress is not None:
            self._on_progress(self.finished, self.total)
