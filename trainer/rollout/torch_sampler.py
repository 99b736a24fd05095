"""The reference sampler: own batched decoding in torch, straight from the live model's weights.

Lean path (Llama, Qwen2): packed weights, one prefill per distinct context whatever the number of samples, a static
cache, finished rows leave and waiting ones take their place. Other architectures run on transformers' own forward
(``trainer.rollout.generic``), which a log line and the capability ``generic`` make visible.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from trainer.core import rng
from trainer.policy.decoder import HIDDEN, Cache, Decoder, why_not_lean
from trainer.rollout.distribution import choose
from trainer.rollout.generic import generate_rows
from trainer.rollout.rows import Row, Watch
from trainer.rollout.sampler import (
    Completion,
    Progress,
    Request,
    SamplingParams,
    StreamKey,
    check_requests,
    sample_keys,
)

log = logging.getLogger(__name__)

_CACHE_BYTES_CPU = 16 << 20
_BLOCK = 64


class TorchSampler:
    """Samples from ``model`` (see ``trainer.rollout.sampler.Sampler``), fp32, on the model's device.

    ``max_rows`` is the number of rows decoded together; the default keeps the cache of a small model inside the
    processor's own cache, which is faster than more rows. It changes speed only, never a sample, up to the rounding of
    sums. Weights are packed again when a parameter was changed in place (seen by torch's version counters) and after
    ``refresh()``, which is needed where a change bypasses the counters (``.data``).
    """

    def __init__(self, model: nn.Module, *, max_rows: int | None = None) -> None:
        self.model = model
        self.max_rows = max_rows
        self._decoder: Decoder | None = None
        self._versions: tuple[tuple[int, int], ...] = ()
        self.fallback_reason = why_not_lean(model)
        """Why the slow path runs, or None on the lean path."""
        if self.fallback_reason:
            log.warning("sampling falls back to transformers' forward (slower): %s", self.fallback_reason)

    @property
    def capabilities(self) -> frozenset[str]:
        """``lean`` or ``generic`` (which path runs), and what both can: see the names."""
        path = "generic" if self.fallback_reason else "lean"
        return frozenset({path, "greedy", "top_k", "top_p", "prefix", "counter_rng", "exact_logprobs", "any_head"})

    def refresh(self) -> None:
        """Forget the packed weights; the next ``generate`` reads the model again."""
        self._decoder = None
        self.fallback_reason = why_not_lean(self.model)

    def generate(
        self,
        requests: Sequence[Request],
        params: SamplingParams,
        stream: StreamKey,
        *,
        on_progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> list[list[Completion]]:
        """See the protocol."""
        config: Any = self.model.config
        limit = getattr(config, "max_position_embeddings", None)
        check_requests(requests, params, vocab_size=config.vocab_size, max_positions=limit)
        rows = [
            [Row(r.prompt_ids + r.prefix_ids, rng.signed(k), len(r.prefix_ids)) for k in sample_keys(stream, r)]
            for r in requests
        ]
        # Neighbours in the queue of equal length waste no padding; the order of the queue changes no sample.
        queue = sorted((row for group in rows for row in group), key=lambda row: -len(row.context))
        if queue:
            watch = Watch(len(queue), on_progress, should_stop)
            if self.fallback_reason:
                generate_rows(self.model, queue, params, watch, max_rows=self.max_rows or 64)
            else:
                decoder = self._packed()
                width = len(queue[0].context) + params.max_new_tokens
                # An ended row runs on, unused, until the next rebuild.
                decoder.reserve(width + _BLOCK)
                with torch.inference_mode():
                    _Decoding(decoder, params, self._row_limit(decoder, width), queue, watch).run()
        return [[row.completion(params.eos_ids) for row in group] for group in rows]

    def _row_limit(self, decoder: Decoder, width: int) -> int:
        if self.max_rows is not None:
            return self.max_rows
        if decoder.device.type != "cpu":
            return 1024
        return max(64, min(256, _CACHE_BYTES_CPU // (decoder.kv_bytes * width)))

    def _packed(self) -> Decoder:
        versions = tuple((p.data_ptr(), p._version) for p in self.model.parameters())
        if self._decoder is None or versions != self._versions:
            self._decoder, self._versions = Decoder(self.model), versions
        return self._decoder


class _Decoding:
    """One call of ``generate`` on the lean path: the active rows, their cache, and the waiting queue.

    Between two rebuilds the set of rows is fixed. A rebuild writes back what was sampled, drops ended rows, admits
    waiting ones, and moves everything to the left end of fresh cache columns. It costs about one decoding step, so it
    happens when the share of ended rows, summed over steps, has wasted as much.
    """

    def __init__(self, decoder: Decoder, params: SamplingParams, limit: int, queue: list[Row], watch: Watch) -> None:
        self.decoder, self.params, self.limit, self.watch = decoder, params, limit, watch
        self.queue, self.next = queue, 0
        self.uses = Counter(row.context for row in queue)
        self.ready: dict[tuple[int, ...], tuple[_Prefilled, int]] = {}
        self.rows: list[Row] = []
        device = decoder.device
        self.cache: Cache = []
        self.column = self.capacity = 0
        self.start = torch.empty(0, dtype=torch.long, device=device)
        self.tokens = torch.empty(0, dtype=torch.long, device=device)
        self.keys = torch.empty(0, dtype=torch.long, device=device)

    def run(self) -> None:
        """Sample every row of the queue to its end."""
        while True:
            self.watch.check()
            self._rebuild()
            if not self.rows:
                return
            self._decode()

    def _decode(self) -> None:
        """Steps with a fixed set of rows, until a rebuild pays or no column is left."""
        device, rows = self.decoder.device, self.rows
        steps = self.capacity - self.column
        sampled = torch.tensor([len(r.ids) for r in rows], device=device)
        positions = torch.tensor([len(r.context) + len(r.ids) - 1 for r in rows], device=device)
        first = torch.tensor([r.first_position + len(r.ids) for r in rows], device=device)
        uniform = rng.uniforms(self.keys[:, None], first[:, None] + torch.arange(steps, device=device)).t().contiguous()
        columns = torch.arange(self.capacity, device=device)
        bias = torch.zeros(len(rows), self.capacity, device=device).masked_fill_(columns < self.start[:, None], HIDDEN)
        bias = bias.repeat_interleave(self.decoder.kv_heads, 0).unsqueeze(1)
        ended = torch.zeros(len(rows), dtype=torch.bool, device=device)
        # Step at which a row reaches its limit, counted from this segment's first step.
        limit = self.params.max_new_tokens - sampled
        count = torch.zeros_like(limit)
        history: list[tuple[torch.Tensor, torch.Tensor]] = []
        wasted = 0.0
        for step in range(steps):
            self.watch.check()
            logits = self.decoder.step(self.tokens, positions, self.cache, self.column, bias)
            self.tokens, logprobs = choose(logits, uniform[step], self.params)
            history.append((self.tokens, logprobs))
            count += ~ended
            for eos in self.params.eos_ids:
                ended |= self.tokens == eos
            ended |= limit <= step + 1
            positions += 1
            self.column += 1
            share = int(ended.sum()) / len(rows)
            wasted += share
            if share == 1.0 or wasted >= 1.0:
                break
        self._write_back(history, count, ended)

    def _write_back(
        self, history: list[tuple[torch.Tensor, torch.Tensor]], count: torch.Tensor, ended: torch.Tensor
    ) -> None:
        ids = torch.stack([tokens for tokens, _ in history], 1).tolist()
        logprobs = torch.stack([values for _, values in history], 1).tolist()
        for row, n, end, new_ids, new_logprobs in zip(
            self.rows, count.tolist(), ended.tolist(), ids, logprobs, strict=True
        ):
            row.ids += new_ids[:n]
            row.logprobs += new_logprobs[:n]
            row.ended = end

    def _rebuild(self) -> None:
        keep = [i for i, row in enumerate(self.rows) if not row.ended]
        self.watch.done(len(self.rows) - len(keep))
        admitted = self._admit(self.limit - len(keep))
        kept = torch.tensor(keep, dtype=torch.long, device=self.decoder.device)
        rows = [self.rows[i] for i in keep] + [row for row, _, _ in admitted]
        self.rows = rows
        if not rows:
            return
        start = self.start[kept]
        span = self.column - int(start.min()) if keep else 0
        column = max(span, max((len(row.context) for row, _, _ in admitted), default=0))
        left = max(self.params.max_new_tokens - len(row.ids) for row in rows)
        capacity = column + min(left, _BLOCK)
        self.cache = [
            tuple(self._move(layer, side, kept, span, admitted, column, capacity) for side in range(2))  # type: ignore[misc]
            for layer in range(len(self.decoder.layers))
        ]
        self.start = torch.cat(
            [start + (column - self.column), self._tensor(column - len(r.context) for r, _, _ in admitted)]
        )
        self.tokens = torch.cat([self.tokens[kept], self._tensor(row.ids[-1] for row, _, _ in admitted)])
        self.keys = torch.cat([self.keys[kept], self._tensor(row.key for row, _, _ in admitted)])
        self.column, self.capacity = column, capacity

    def _tensor(self, values: Iterable[int]) -> torch.Tensor:
        return torch.tensor(list(values), dtype=torch.long, device=self.decoder.device)

    def _move(
        self, layer: int, side: int, kept: torch.Tensor, span: int,
        admitted: list[tuple[Row, _Prefilled, int]], column: int, capacity: int,
    ) -> torch.Tensor:  # fmt: skip
        """One cache tensor of the new rows: kept ones by their last ``span`` columns, then admitted prefills."""
        kv, dim = self.decoder.kv_heads, self.decoder.dim
        fresh = torch.empty(len(self.rows), kv, capacity, dim, device=self.decoder.device)
        # Columns before a row's start are multiplied by weight 0, which needs them finite.
        fresh[:, :, :column] = 0
        if len(kept):
            old = self.cache[layer][side].view(-1, kv, self.capacity, dim)
            fresh[: len(kept), :, column - span : column] = old[kept, :, self.column - span : self.column]
        at = len(kept)
        while at < len(self.rows):
            block = admitted[at - len(kept)][1]
            picks = []
            for _, other, index in admitted[at - len(kept) :]:
                if other is not block:
                    break
                picks.append(index)
            source = block.cache[layer][side].view(-1, kv, block.width, dim)
            fresh[at : at + len(picks), :, column - block.width : column] = source[self._tensor(picks)]
            at += len(picks)
        return fresh.view(-1, capacity, dim)

    def _admit(self, free: int) -> list[tuple[Row, _Prefilled, int]]:
        """Take rows from the queue with their prefills and first tokens; those that end at once are done."""
        admitted: list[tuple[Row, _Prefilled, int]] = []
        while free > len(admitted) and self.next < len(self.queue):
            batch = self.queue[self.next : self.next + free - len(admitted)]
            self.next += len(batch)
            fresh = list(dict.fromkeys(row.context for row in batch if row.context not in self.ready))
            if fresh:
                block = _Prefilled(*self.decoder.prefill(fresh), width=max(map(len, fresh)))
                self.ready.update({context: (block, i) for i, context in enumerate(fresh)})
            sources = [self.ready[row.context] for row in batch]
            logits = torch.stack([block.logits[index] for block, index in sources])
            uniform = rng.uniforms(self._tensor(r.key for r in batch), self._tensor(r.first_position for r in batch))
            tokens, logprobs = choose(logits, uniform, self.params)
            for row, token, logprob, source in zip(batch, tokens.tolist(), logprobs.tolist(), sources, strict=True):
                row.ids.append(token)
                row.logprobs.append(logprob)
                row.ended = token in self.params.eos_ids or self.params.max_new_tokens == 1
                if not row.ended:
                    admitted.append((row, *source))
            self.watch.done(sum(row.ended for row in batch))
            self.uses.subtract(row.context for row in batch)
            self.ready = {c: source for c, source in self.ready.items() if self.uses[c] > 0}
        return admitted


@dataclass(frozen=True)
class _Prefilled:
    """Logits (U, V) and right-aligned cache of U contexts, ``width`` columns."""

    logits: torch.Tensor
    cache: Cache
    width: int
