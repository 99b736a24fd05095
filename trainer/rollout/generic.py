"""Sampling with transformers' own forward and cache, for architectures without an own one.

Rows are decoded in fixed sets with left padding and explicit positions; each distinct context of a set is computed
once, and ended rows leave when they are half of the set.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache

from trainer.core import rng
from trainer.rollout.distribution import choose
from trainer.rollout.rows import Row, Watch
from trainer.rollout.sampler import SamplingParams
from trainer.rollout.stops import StopStrings


@torch.inference_mode()
def generate_rows(
    model: Any, queue: list[Row], params: SamplingParams, stops: StopStrings, watch: Watch, *, max_rows: int
) -> None:
    """Sample every row of ``queue`` to its end, ``max_rows`` at a time; ids and log-probs are appended to the rows."""
    was_training = model.training
    model.eval()
    for at in range(0, len(queue), max_rows):
        _decode(model, queue[at : at + max_rows], params, stops, watch)
    model.train(was_training)


def _decode(model: Any, rows: list[Row], params: SamplingParams, stops: StopStrings, watch: Watch) -> None:
    device = next(model.parameters()).device
    contexts = list(dict.fromkeys(row.context for row in rows))
    width = max(map(len, contexts))
    ids = torch.zeros(len(contexts), width, dtype=torch.long)
    mask = torch.zeros(len(contexts), width, dtype=torch.long)
    for i, context in enumerate(contexts):
        ids[i, width - len(context) :] = torch.tensor(context)
        mask[i, width - len(context) :] = 1
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    watch.check()
    cache = DynamicCache(config=model.config)
    out = model(
        input_ids=ids.to(device), attention_mask=mask.to(device), position_ids=positions.to(device),
        past_key_values=cache, use_cache=True,
    )  # fmt: skip
    pick = torch.tensor([contexts.index(row.context) for row in rows], device=device)
    cache.batch_select_indices(pick)
    logits, mask, position = out.logits[:, -1][pick], mask.to(device)[pick], positions[:, -1].to(device)[pick]
    while True:
        keys = torch.tensor([row.key for row in rows], device=device)
        at = torch.tensor([row.first_position + len(row.ids) for row in rows], device=device)
        tokens, logprobs = choose(logits, rng.uniforms(keys, at), params)
        for row, token, logprob in zip(rows, tokens.tolist(), logprobs.tolist(), strict=True):
            if not row.ended:
                row.add(token, logprob, params, stops)
        live = [i for i, row in enumerate(rows) if not row.ended]
        if not live:
            watch.done(len(rows))
            return
        if 2 * len(live) <= len(rows):
            keep = torch.tensor(live, device=device)
            cache.batch_select_indices(keep)
            tokens, mask, position = tokens[keep], mask[keep], position[keep]
            watch.done(len(rows) - len(live))
            rows = [rows[i] for i in live]
        watch.check()
        mask = torch.cat([mask, mask.new_ones(len(rows), 1)], 1)
        position = position + 1
        out = model(
            input_ids=tokens[:, None], attention_mask=mask, position_ids=position[:, None], past_key_values=cache,
            use_cache=True,
        )  # fmt: skip
        logits = out.logits[:, -1]
