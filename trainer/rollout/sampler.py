"""What every sampler promises, whatever engine runs below it.

A sample's random numbers depend on its stream and request coordinates and on its own token position only, never on what
else is in the batch: ``sample_key`` names them once for all engines of this package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from trainer.core import rng
from trainer.core.errors import ConfigError, SamplerError


class SamplingStopped(SamplerError):
    """``should_stop`` answered true while sampling; nothing of the unfinished call is returned."""


@dataclass(frozen=True)
class SamplingParams:
    """The sampling distribution and when a sample ends.

    ``temperature`` ≥ 0 divides the logits (0: greedy, the first of the largest logits). ``top_k`` keeps the k most
    likely tokens (0: all), then ``top_p`` in (0, 1] keeps the fewest tokens that reach that mass; what is left is
    renormalised. ``max_new_tokens`` ≥ 1 counts sampled tokens, the end-of-sequence token included. Any of ``eos_ids``
    ends a sample; with none, samples run to the limit.
    """

    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 256
    eos_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ConfigError(f"temperature: found {self.temperature}, expected a finite number ≥ 0")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p: found {self.top_p}, expected a number in (0, 1]")
        if self.top_k < 0:
            raise ConfigError(f"top_k: found {self.top_k}, expected 0 (off) or a positive number")
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
    sample index ``first_sample + j``.
    """

    uid: str
    prompt_ids: tuple[int, ...]
    n: int
    draw: int = 0
    node: int = 0
    first_sample: int = 0
    prefix_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Completion:
    """One sample. ``ids`` are the new tokens (without the prefix; with the end-of-sequence token where it ended so).

    ``logprobs`` are natural logarithms under the sampling distribution (temperature, top-k and top-p applied), one per
    id; under greedy decoding that distribution is one point, and they are 0.
    """

    ids: list[int]
    logprobs: list[float]
    finish: Literal["eos", "length"]


Progress = Callable[[int, int], None]
"""Called with (samples finished, samples asked for), from time to time and at the end."""


class Sampler(Protocol):
    """Draws completions from a live policy."""

    @property
    def capabilities(self) -> frozenset[str]:
        """What the engine can do, e.g. ``prefix``, ``top_k``, ``counter_rng``, ``lean``; see each engine."""
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
        if request.n < 1:
            raise SamplerError(f"request {request.uid}: found n={request.n}, expected at least 1")
        if min(context) < 0 or max(context) >= vocab_size:
            raise SamplerError(f"request {request.uid}: ids go from {min(context)} to {max(context)}, expected 0 … "
                               f"{vocab_size - 1}; the tokenizer does not belong to this model")  # fmt: skip
        longest = len(context) + params.max_new_tokens
        if max_positions is not None and longest > max_positions:
            raise SamplerError(
                f"request {request.uid}: {len(context)} context tokens + max_new_tokens {params.max_new_tokens} = "
                f"{longest}, but the model has {max_positions} positions; lower max_new_tokens or shorten the prompt"
            )
