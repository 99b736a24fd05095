"""Log-probabilities of tokens packed as a tree: each sees the prompt and its own ancestors, at the position of its depth.

One row then holds all pieces of a forked trajectory, and a shared beginning is computed once. The values are those of the
separate paths up to the order of sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from trainer.core.errors import ConfigError
from trainer.core.slots import Scores
from trainer.policy.heads import outputs
from trainer.policy.scoring import LOGIT_ELEMENTS, _choose
from trainer.policy.truncation import Truncation


def ancestors(parents_NT: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(seen (N, T, T), depth (N, T)) of a tree: whether a token (row) has another one (column) among its ancestors or is
    it, and how many ancestors it has. A parent comes before its children; −1 is none."""
    rows, width = parents_NT.shape
    seen = torch.eye(width, dtype=torch.bool, device=parents_NT.device).repeat(rows, 1, 1)
    row = torch.arange(rows, device=parents_NT.device)
    for token in range(width):
        parent = parents_NT[:, token]
        above = seen[row, parent.clamp(min=0)] & (parent >= 0)[:, None]
        seen[:, token] |= above
    return seen, seen.sum(2) - 1


def score_trees(
    model: Any, prefix_ids_NP: torch.Tensor, prefix_len_N: torch.Tensor, ids_NT: torch.Tensor, length_N: torch.Tensor,
    parents_NT: torch.Tensor, *, temperature: float, entropy_grad: bool = False,
    heads: Mapping[str, torch.nn.Module] | None = None, truncation: Truncation | None = None,
    logit_elements: int = LOGIT_ELEMENTS, collision: bool = False,
) -> Scores:  # fmt: skip
    """What `trainer.policy.scoring.score` promises, for tokens whose predecessor is ``parents_NT`` (see `Sample`)."""
    if set(getattr(model.config, "layer_types", None) or ()) - {"full_attention"}:
        raise ConfigError("a packed tree needs attention to all tokens before; found layers with a window: pack units")
    heads = heads or {}
    width, prefix = ids_NT.shape[1], prefix_ids_NP.shape[1]
    column = torch.arange(prefix + width, device=ids_NT.device)
    size = max(1, logit_elements // (len(column) * model.get_output_embeddings().weight.shape[0]))
    real_NT = torch.arange(width, device=ids_NT.device) < length_N[:, None]
    placed = [torch.zeros(ids_NT.shape, device=ids_NT.device) for _ in range(3 if collision else 2)]
    extra = {name: placed[0].clone() for name in heads}
    first = 0
    for rows in torch.arange(len(ids_NT), device=ids_NT.device).split(size):
        parents, own = parents_NT[rows], real_NT[rows]
        seen, depth = ancestors(parents)
        before = (column[:prefix] < prefix_len_N[rows, None])[:, None]
        whole = torch.eye(len(column), dtype=torch.bool, device=ids_NT.device).repeat(len(rows), 1, 1)
        whole[:, :prefix, :prefix] |= before & (column[:prefix, None] >= column[:prefix])
        whole[:, prefix:, :prefix] = before
        whole[:, prefix:, prefix:] = seen
        bias = torch.zeros(whole.shape, dtype=model.dtype, device=ids_NT.device)
        bias.masked_fill_(~whole, torch.finfo(model.dtype).min)
        position = torch.cat([column[:prefix].expand(len(rows), -1), prefix_len_N[rows, None] + depth], 1)
        # Padding is seen by nothing real; its position only has to be one that the model has.
        out = model(
            input_ids=torch.cat([prefix_ids_NP[rows], ids_NT[rows]], 1),
            attention_mask=bias[:, None],
            position_ids=torch.where(torch.cat([before[:, 0], own], 1), position, 0),
            use_cache=False,
            output_hidden_states=bool(heads),
        )
        source = torch.where(parents < 0, prefix_len_N[rows, None] - 1, prefix + parents)
        at = torch.arange(len(rows), device=ids_NT.device)[:, None].expand(-1, width)[own]
        picked = (at, source[own])
        wanted = ids_NT[rows][own]
        values = _choose(out.logits[picked], wanted, temperature, True, entropy_grad, truncation, first, collision)
        first += len(wanted)
        place = (rows[at], column[:width].expand(len(rows), -1)[own])
        placed = [so_far.index_put(place, value) for so_far, value in zip(placed, values, strict=True)]
        for name, value in outputs(heads, out.hidden_states[-1][picked]).items() if heads else ():
            extra[name] = extra[name].index_put(place, value)
    logprobs, entropy, *collisions = placed
    return Scores(logprobs, entropy, extra, *collisions)
