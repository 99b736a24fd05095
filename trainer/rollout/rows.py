"""Samples under way, shared by the engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trainer.core import rng
from trainer.core.types import EndReason
from trainer.rollout.sampler import (
    Completion,
    Progress,
    Request,
    SamplingParams,
    SamplingStopped,
    StreamKey,
    sample_keys,
)
from trainer.rollout.stops import StopStrings


@dataclass
class Row:
    """A sample under way: its context, the key of its random numbers, the most tokens it may have, and what it has so far."""

    context: tuple[int, ...]
    key: int
    first_position: int
    limit: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ended: bool = False
    stopped: bool = False

    def add(self, token: int, logprob: float, params: SamplingParams, stops: StopStrings) -> None:
        """Append a token and note whether the sample ends with it."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.stopped = bool(stops) and stops.completed_by(self.last(stops.window))
        self.ended = self.stopped or token in params.eos_ids or len(self.ids) >= self.limit

    def last(self, count: int) -> list[int]:
        """The last ``count`` of the sample's own ids, those of its prefix included."""
        new = self.ids[-count:]
        begin = len(self.context) - min(self.first_position, count - len(new))
        return [*self.context[begin:], *new]

    def completion(self, eos_ids: Sequence[int]) -> Completion:
        """The finished sample. An end-of-sequence token outweighs a stop string, and both the limit."""
        by_token: EndReason = "stop" if self.stopped else "length"
        return Completion(self.ids, self.logprobs, "eos" if self.ids[-1] in eos_ids else by_token)


def rows_of(request: Request, params: SamplingParams, stream: StreamKey) -> list[Row]:
    """The request's samples before their first token."""
    context, limit = request.prompt_ids + request.prefix_ids, request.limit(params)
    return [Row(context, rng.signed(key), len(request.prefix_ids), limit) for key in sample_keys(stream, request)]


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
