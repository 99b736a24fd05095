"""What every sampler promises, whatever engine runs below it.

A sample's random numbers depend on its stream and request coordinates and on its own token position only, never on what
else is in the batch: ``sample_key`` names them once for all engines of this package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainer.contract.config import SamplingSection
from trainer.contract.events import SamplerSettings
from trainer.core import rng
from trainer.core.errors import ConfigError, SamplerError
from trainer.core.types import EndReason


class SamplingStopped(SamplerError):
    """``should_stop`` answered true while sampling; nothing of the unfinished call is returned."""


@dataclass(frozen=True)
class SamplingParams:
    """The sampling distribution and when a sample ends.

    ``temperature`` ≥ 0 divides the logits (0: greedy, the first of the largest logits). ``top_k`` keeps the k most
    likely tokens (0: all), then ``min_p`` in [0, 1] those with at least that share of the largest probability, then
    ``top_p`` in (0, 1] the fewest tokens that reach that mass; what is left is renormalised. ``max_new_tokens`` ≥ 1
    counts sampled tokens, the end-of-sequence token included. Any of ``eos_ids`` ends a sample, and so does the token
    that completes one of the ``stop`` strings in the sample's text; with neither, samples run to the limit.
    """

    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 256
    eos_ids: tuple[int, ...] = ()
    min_p: float = 0.0
    stop: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: SamplingSection | SamplerSettings, eos_ids: tuple[int, ...]) -> SamplingParams:
        """Those of a configuration, or of an evaluation set, for a policy with these end-of-sequence ids."""
        chosen = {name: value for name, value in settings.model_dump().items() if name != "stop"}
        return cls(**chosen, stop=tuple(settings.stop), eos_ids=eos_ids)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ConfigError(f"temperature: found {self.temperature}, expected a finite number ≥ 0")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p: found {self.top_p}, expected a number in (0, 1]")
        if self.top_k < 0:
            raise ConfigError(f"top_k: found {self.top_k}, expected 0 (off) or a positive number")
        if not 0 <= self.min_p <= 1:
            raise ConfigError(f"min_p: found {self.min_p}, expected a number from 0 (off) to 1")
        if "" in self.stop:
            raise ConfigError(f"stop: found {self.stop}, expected strings of one character or more")
        if self.max_new_tokens < 1:
            raise ConfigError(f"max_new_tokens: found {self.max_new_tokens}, expected at least 1")


@dataclass(frozen=True)
class StreamKey:
    """Which random numbers a call uses. ``scope`` names a nested run; ``purpose`` parts evaluation from training."""

    seed: int
    iteration: int
    scope: str = ""
    policy: str = "policy"
    purpose: str = "train"


@dataclass(frozen=True)
class Request:
    """``n`` independent samples after one context.

    The context is ``prompt_ids + prefix_ids``; token positions count from the end of ``prompt_ids``, so continuing a
    sample from its own first tokens (same coordinates, those tokens as ``prefix_ids``) gives the rest of that sample.
    ``draw`` tells repeated draws of a prompt apart, ``node`` places in a rollout tree, and sample j of the request has
    sample index ``first_sample + j``. ``max_new_tokens`` takes the place of the call's own, where it is less.
    """

    uid: str
    prompt_ids: tuple[int, ...]
    n: int
    draw: int = 0
    node: int = 0
    first_sample: int = 0
    prefix_ids: tuple[int, ...] = ()
    max_new_tokens: int | None = None

    def limit(self, params: SamplingParams) -> int:
        """Most tokens of a sample."""
        return params.max_new_tokens if self.max_new_tokens is None else min(self.max_new_tokens, params.max_new_tokens)


@dataclass(frozen=True)
class Completion:
    """One sample. ``ids`` are the new tokens (without the prefix; with the token that ended it, where one did).

    ``logprobs`` are natural logarithms under the sampling distribution (temperature and truncation applied), one per
    id; under greedy decoding that distribution is one point, and they are 0. A sample whose last allowed token ends it
    has not hit the limit.
    """

    ids: list[int]
    logprobs: list[float]
    finish: EndReason


Progress = Callable[[int, int], None]
"""Called with (samples finished, samples asked for), from time to time and at the end."""


class Sampler(Protocol):
    """Draws completions from a live policy."""

    @property
    def capabilities(self) -> frozenset[str]:
        """What the engine can do, e.g. ``prefix``, ``top_k``, ``stop``, ``lean``; see each engine."""
        ...

    @property
    def engine(self) -> str:
        """Name and version of whatever decides which tokens a seed draws: two engines of one name draw alike."""
        ...

    def generate(
        self,
        requests: Sequence[Request],
        params: SamplingParams,
        stream: StreamKey,
        *,
        on_progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> list[list[Completion]]:
        """The completions of each request, in the order of the requests, n each.

        ``should_stop`` is asked before every decoding step; once it is true the call raises SamplingStopped.
        """
        ...

    def refresh(self) -> None:
        """Forget everything derived from earlier weights. Call after weights changed."""
        ...

    def close(self) -> None:
        """Give back what the engine holds, for good or until the next call."""
        ...


def sample_keys(stream: StreamKey, request: Request) -> list[int]:
    """The 64-bit key of each of the request's n samples."""
    return [
        rng.key(
            "sample", stream.seed, stream.scope, stream.policy, stream.purpose, stream.iteration,
            request.uid, request.draw, request.first_sample + j, request.node,
        )
        for j in range(request.n)
    ]  # fmt: skip


def check_requests(
    requests: Sequence[Request], params: SamplingParams, *, vocab_size: int, max_positions: int | None
) -> None:
    """Raise SamplerError for a request no engine can serve: empty context, foreign ids, or a context too long."""
    for request in requests:
        context = request.prompt_ids + request.prefix_ids
        if not context:
            raise SamplerError(f"request {request.uid}: found an empty context, expected at least one token (add bos)")
        if request.n < 1 or request.limit(params) < 1:
            raise SamplerError(
                f"request {request.uid}: found n={request.n} and max_new_tokens {request.limit(params)}, expected at least 1"
            )
        if min(context) < 0 or max(context) >= vocab_size:
            raise SamplerError(f"request {request.uid}: ids go from {min(context)} to {max(context)}, expected 0 … "
                               f"{vocab_size - 1}; the tokenizer does not belong to this model")  # fmt: skip
        longest = len(context) + request.limit(params)
        if max_positions is not None and longest > max_positions:
            raise SamplerError(
                f"request {request.uid}: {len(context)} context tokens + max_new_tokens {request.limit(params)} = "
                f"{longest}, but the model has {max_positions} positions; lower max_new_tokens or shorten the prompt"
            )
