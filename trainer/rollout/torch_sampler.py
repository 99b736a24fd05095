"""The reference sampler: own batched decoding in torch, straight from the live model's weights.

Lean path (Llama, Qwen2): packed weights, one prefill per distinct context whatever the number of samples, a static
cache, finished rows leave and waiting ones take their place. Other architectures run on transformers' own forward
(``trainer.rollout.generic``), which a log line and the capability ``generic`` make visible.
"""

from __future__ import annotations

import logging
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from trainer.core import rng
from trainer.policy.adapters import version_of
from trainer.policy.decoder import HIDDEN, Cache, Decoder, Grid, why_not_lean
from trainer.policy.products import rounded
from trainer.rollout.distribution import choose
from trainer.rollout.generic import generate_rows
from trainer.rollout.rows import Row, Watch, rows_of
from trainer.rollout.sampler import (
    Completion,
    Progress,
    Request,
    SamplingParams,
    StreamKey,
    check_requests,
)
from trainer.rollout.stops import StopStrings

log = logging.getLogger(__name__)

_CACHE_BYTES_CPU = 16 << 20
_BLOCK = 64
ENGINE_VERSION = 2
"""Another number wherever a change of this class or its decoder may draw other tokens from the same seed."""


class TorchSampler:
    """Samples from ``model`` (see ``trainer.rollout.sampler.Sampler``), fp32, on the model's device.

    ``max_rows`` is the number of rows decoded together; the default keeps the cache of a small model inside the
    processor's own cache, which is faster than more rows. It changes speed only, never a sample, up to the rounding of
    sums. Stop strings need the ``tokenizer``. Weights are packed again when a parameter was changed in place (seen by
    torch's version counters), when an adapter was switched, and after ``refresh()``, which is needed where a change bypasses
    the counters (``.data``).
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        tokenizer: PreTrainedTokenizerBase | None = None,
        max_rows: int | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.max_rows = max_rows
        self._decoder: Decoder | None = None
        self._versions: tuple[Any, ...] = ()
        self.fallback_reason = why_not_lean(model)
        """Why the slow path runs, or None on the lean path."""
        if self.fallback_reason:
            log.warning("sampling falls back to transformers' forward (slower): %s", self.fallback_reason)

    @property
    def engine(self) -> str:
        """This class's version, torch's, the kind of processor, and which of the two ways to decode."""
        way = "generic" if self.fallback_reason else "lean"
        return f"torch-sampler {ENGINE_VERSION} ({way}), torch {torch.__version__}, {platform.machine()}"

    @property
    def capabilities(self) -> frozenset[str]:
        """``lean`` or ``generic`` (which path runs), and what both can: see the names."""
        path = "generic" if self.fallback_reason else "lean"
        kinds = {"greedy", "top_k", "top_p", "min_p", "stop", "prefix", "counter_rng", "exact_logprobs", "any_head"}
        return frozenset({path, *kinds})

    def refresh(self) -> None:
        """Forget the packed weights; the next ``generate`` reads the model again."""
        self._decoder = None
        self.fallback_reason = why_not_lean(self.model)

    def close(self) -> None:
        """Forget the packed weights."""
        self._decoder = None

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
        rows = [rows_of(request, params, stream) for request in requests]
        # Neighbours in the queue of equal length waste no padding; the order of the queue changes no sample.
        queue = sorted((row for group in rows for row in group), key=lambda row: -len(row.context))
        if queue:
            watch, stops = Watch(len(queue), on_progress, should_stop), StopStrings(params.stop, self.tokenizer)
            if self.fallback_reason:
                generate_rows(self.model, queue, params, stops, watch, max_rows=self.max_rows or 64)
            else:
                decoder = self._packed()
                width = max(len(row.context) + row.limit for row in queue)
                # An ended row runs on, unused, until the next rebuild.
                decoder.reserve(width + _BLOCK)
                with torch.inference_mode():
                    limit = self._row_limit(decoder, max(row.limit for row in queue))
                    _Decoding(decoder, params, stops, limit, queue, watch).run()
        return [[row.completion(params.eos_ids) for row in group] for group in rows]

    def _row_limit(self, decoder: Decoder, new_tokens: int) -> int:
        if self.max_rows is not None:
            return self.max_rows
        if decoder.device.type != "cpu":
            return 1024
        return max(64, min(256, _CACHE_BYTES_CPU // (decoder.kv_bytes * new_tokens)))

    def _packed(self) -> Decoder:
        versions = version_of(self.model)
        if self._decoder is None or versions != self._versions:
            self._decoder, self._versions = Decoder(self.model), versions
        return self._decoder


@dataclass(frozen=True)
class _Prefilled:
    """Logits (M, V) and cache (M × kv heads, width, D), right-aligned, of M contexts."""

    logits: torch.Tensor
    cache: Cache
    width: int


class _Decoding:
    """One call of ``generate`` on the lean path: the grid of active rows and the waiting queue.

    Between two rebuilds the grid is fixed. A rebuild writes back what was sampled, drops ended rows, admits waiting
    ones, and moves the kept caches to the left end of fresh ones. It costs about one decoding step, so it happens when
    the share of ended rows, summed over steps, has wasted as much. An empty slot is a None and counts as ended.
    """

    def __init__(
        self,
        decoder: Decoder,
        params: SamplingParams,
        stops: StopStrings,
        limit: int,
        queue: list[Row],
        watch: Watch,
    ) -> None:
        self.decoder, self.params, self.stops, self.limit, self.watch = decoder, params, stops, limit, watch
        self.queue, self.next = queue, 0
        self.uses = Counter(row.context for row in queue)
        self.ready: dict[tuple[int, ...], tuple[_Prefilled, int]] = {}
        self.rows: list[Row | None] = []
        self.grid: Grid | None = None
        self.column = self.capacity = 0

    def run(self) -> None:
        """Sample every row of the queue to its end."""
        while True:
            self.watch.check()
            self._rebuild()
            if self.grid is None:
                return
            self._decode(self.grid)

    def _decode(self, grid: Grid) -> None:
        """Steps with a fixed grid, until a rebuild pays or no column is left."""
        rows = self.rows
        steps = self.capacity - self.column
        tokens = self._tensor(row.ids[-1] if row else 0 for row in rows)
        positions = self._tensor(len(row.context) + len(row.ids) - 1 if row else 0 for row in rows)
        keys = self._tensor(row.key if row else 0 for row in rows)
        first = self._tensor(row.first_position + len(row.ids) if row else 0 for row in rows)
        left = self._tensor(row.limit - len(row.ids) if row else 0 for row in rows)
        step_axis = torch.arange(steps, device=self.decoder.device)[:, None]
        uniform = rng.uniforms(keys, first + step_axis)
        ended = left <= 0
        count = torch.zeros_like(left)
        history: list[tuple[torch.Tensor, torch.Tensor]] = []
        wasted = 0.0
        tails = [row.last(self.stops.window) if row else [] for row in rows] if self.stops else []
        for step in range(steps):
            self.watch.check()
            logits = self.decoder.step(tokens, positions, grid, self.column)
            tokens, logprobs = choose(logits, uniform[step], self.params)
            history.append((tokens, logprobs))
            count += ~ended
            if self.stops:
                ended |= self._stopped(tails, tokens, ended)
            for eos in self.params.eos_ids:
                ended |= tokens == eos
            ended |= left <= step + 1
            positions += 1
            self.column += 1
            share = int(ended.sum()) / len(rows)
            wasted += share
            if share == 1.0 or wasted >= 1.0:
                break
        ids = torch.stack([drawn for drawn, _ in history], 1).tolist()
        values = torch.stack([drawn for _, drawn in history], 1).tolist()
        for row, n, end, new_ids, new_values in zip(rows, count.tolist(), ended.tolist(), ids, values, strict=True):
            if row is not None:
                row.ids += new_ids[:n]
                row.logprobs += new_values[:n]
                row.ended = end

    def _stopped(self, tails: list[list[int]], tokens: torch.Tensor, ended: torch.Tensor) -> torch.Tensor:
        """Which rows' new token (R,) completes a stop string; ``tails`` are their last ids and grow by it."""
        found = []
        for row, tail, token, over in zip(self.rows, tails, tokens.tolist(), ended.tolist(), strict=True):
            tail.append(token)
            if row is not None and not over:
                row.stopped = self.stops.completed_by(tail)
            found.append(row is not None and row.stopped)
        return torch.tensor(found, device=ended.device)

    def _rebuild(self) -> None:
        kept = [(place, row) for place, row in enumerate(self.rows) if row is not None and not row.ended]
        self._finished([row for row in self.rows if row is not None and row.ended])
        admitted = self._admit(self.limit - len(kept))
        old_place: dict[int, int] = {id(row): place for place, row in kept}
        by_context: dict[tuple[int, ...], list[Row]] = {}
        for row in [row for _, row in kept] + admitted:
            by_context.setdefault(row.context, []).append(row)
        if not by_context:
            self.grid = None
            return
        slots = _slots([len(group) for group in by_context.values()])
        units: list[tuple[int, ...]] = []
        rows: list[Row | None] = []
        for context, group in by_context.items():
            for at in range(0, len(group), slots):
                units.append(context)
                part = group[at : at + slots]
                rows += [*part, *([None] * (slots - len(part)))]
        while len(rows) < rounded(len(rows)):
            units.append(units[-1])
            rows += [None] * slots
        # In its own cache a row has its new tokens but the last, which was not fed yet.
        spans = [len(row.ids) - 1 if row else 0 for row in rows]
        column = max(spans)
        left = max(row.limit - len(row.ids) for row in rows if row)
        capacity = column + min(left, _BLOCK)
        moves = [(old_place[id(row)], new) for new, row in enumerate(rows) if row is not None and id(row) in old_place]
        own = self._own_cache(moves, len(units), slots, column, capacity)
        shared, shared_bias = self._context_cache(units)
        start = column - self._tensor(spans)
        columns = torch.arange(capacity, device=self.decoder.device)
        bias = torch.zeros(len(rows), capacity, device=self.decoder.device)
        bias.masked_fill_(columns < start[:, None], HIDDEN)
        own_bias = bias.view(len(units), 1, slots, capacity).expand(-1, self.decoder.kv_heads, -1, -1)
        self.grid = Grid(len(units), slots, shared, shared_bias, own, own_bias.reshape(-1, 1, capacity))
        self.rows, self.column, self.capacity = rows, column, capacity

    def _own_cache(self, moves: list[tuple[int, int]], units: int, slots: int, column: int, capacity: int) -> Cache:
        """Fresh own caches; kept rows, by (old, new) place, are moved with their last ``column`` columns."""
        kv, dim = self.decoder.kv_heads, self.decoder.dim
        old = self._tensor(a for a, _ in moves)
        new = self._tensor(b for _, b in moves)
        cache: Cache = []
        for layer in range(len(self.decoder.layers)):
            pair = []
            for side in range(2):
                fresh = torch.empty(units, kv, slots, capacity, dim, device=self.decoder.device)
                # Hidden columns are multiplied by weight 0, which needs them finite.
                fresh[:, :, :, :column] = 0
                if moves and self.grid is not None:
                    # A row shorter than the longest brings hidden columns along, as far as there are any.
                    span = min(column, self.column)
                    source = self.grid.own[layer][side].view(self.grid.units, kv, self.grid.slots, -1, dim)
                    part = source[old // self.grid.slots, :, old % self.grid.slots, self.column - span : self.column]
                    fresh[new // slots, :, new % slots, column - span : column] = part
                pair.append(fresh.view(-1, capacity, dim))
            cache.append((pair[0], pair[1]))
        return cache

    def _context_cache(self, units: list[tuple[int, ...]]) -> tuple[Cache, torch.Tensor]:
        """The units' context caches, right-aligned, and their bias."""
        kv, dim, device = self.decoder.kv_heads, self.decoder.dim, self.decoder.device
        width = max(map(len, units))
        blocks: dict[int, tuple[_Prefilled, list[int], list[int]]] = {}
        for unit, context in enumerate(units):
            block, index = self.ready[context]
            _, places, picks = blocks.setdefault(id(block), (block, [], []))
            places.append(unit)
            picks.append(index)
        cache: Cache = []
        for layer in range(len(self.decoder.layers)):
            pair = []
            for side in range(2):
                fresh = torch.zeros(len(units), kv, width, dim, device=device)
                for block, places, picks in blocks.values():
                    take = min(width, block.width)
                    source = block.cache[layer][side].view(-1, kv, block.width, dim)
                    fresh[places, :, width - take :] = source[picks, :, block.width - take :]
                pair.append(fresh.view(-1, width, dim))
            cache.append((pair[0], pair[1]))
        hidden = torch.arange(width, device=device) < width - self._tensor(map(len, units))[:, None]
        bias = torch.zeros(hidden.shape, device=device).masked_fill_(hidden, HIDDEN)
        return cache, bias.repeat_interleave(kv, 0).unsqueeze(1)

    def _admit(self, free: int) -> list[Row]:
        """Take rows from the queue with their prefills and first tokens; those that end at once are done."""
        admitted: list[Row] = []
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
            for row, token, logprob in zip(batch, tokens.tolist(), logprobs.tolist(), strict=True):
                row.add(token, logprob, self.params, self.stops)
            admitted += [row for row in batch if not row.ended]
            self._finished([row for row in batch if row.ended])
        return admitted

    def _finished(self, rows: list[Row]) -> None:
        """Report finished rows and forget contexts that no row needs any more."""
        self.uses.subtract(row.context for row in rows)
        for row in rows:
            if self.uses[row.context] == 0:
                self.ready.pop(row.context, None)
        self.watch.done(len(rows))

    def _tensor(self, values: Iterable[int]) -> torch.Tensor:
        return torch.tensor(list(values), dtype=torch.long, device=self.decoder.device)


def _slots(counts: list[int]) -> int:
    """Slots a unit, a power of two: few empty ones, but many rows share a context's cache (a unit costs 1/4 row)."""
    options = [1 << i for i in range(max(counts).bit_length() + 1)]
    return min(options, key=lambda s: (sum(-(-n // s) for n in counts) * (s + 0.25), s))
