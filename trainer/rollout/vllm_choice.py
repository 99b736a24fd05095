"""The token choice of this package inside vLLM: a logits processor. Imports vLLM; only ``vllm_sampler`` loads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.sampling_params import SamplingParams as EngineParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, process_dict_updates

from trainer.core import rng
from trainer.rollout.distribution import choose
from trainer.rollout.sampler import SamplingParams

KEY = "unsqueeze"
"""The entry of a request's ``extra_args``: [signed key, first position, temperature, top_k, top_p, min_p]."""


def extra_args(key: int, first_position: int, params: SamplingParams) -> dict[str, Any]:
    """What a request tells the processor; plain numbers, because it may cross a process boundary."""
    return {KEY: [key, first_position, params.temperature, params.top_k, params.top_p, params.min_p]}


@dataclass(frozen=True)
class _Place:
    """One row of vLLM's batch. ``drawn`` is the engine's own, growing list of the request's new tokens."""

    key: int
    first_position: int
    params: SamplingParams
    drawn: list[int]


class CounterChoice(LogitsProcessor):  # type: ignore[misc]
    """Chooses each row's token with the package's own distribution and counter-based numbers.

    What is returned has -inf everywhere but at the chosen token, which has its log-probability: the largest logit, so
    that vLLM's greedy choice takes it, and the "processed logit" that vLLM then reports.
    """

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        self._rows: dict[int, _Place] = {}

    def is_argmax_invariant(self) -> bool:
        """No: it decides the largest."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow the rows that came, went and moved."""
        process_dict_updates(self._rows, batch_update, _place)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits (R, V) fp32 → the same shape, one finite entry a row."""
        by_params: dict[SamplingParams, list[int]] = {}
        for index in sorted(self._rows):
            by_params.setdefault(self._rows[index].params, []).append(index)
        out = torch.full_like(logits, -torch.inf)
        for params, indices in by_params.items():
            places = [self._rows[i] for i in indices]
            rows = torch.tensor(indices, device=logits.device)
            keys = torch.tensor([p.key for p in places], device=logits.device)
            at = torch.tensor([p.first_position + len(p.drawn) for p in places], device=logits.device)
            tokens, logprobs = choose(logits[rows], rng.uniforms(keys, at), params)
            out[rows, tokens] = logprobs
        return out


def _place(params: EngineParams, _prompt_ids: list[int] | None, drawn: list[int]) -> _Place:
    key, first_position, temperature, top_k, top_p, min_p = params.extra_args[KEY]
    chosen = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    return _Place(key, first_position, chosen, drawn)
