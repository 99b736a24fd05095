"""The forward pass over samples: current log-probs and entropies, aligned with the samples' own ids."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trainer.core.types import Batch
from trainer.policy.load import Policy
from trainer.policy.scoring import Scores, score


def score_batch(policy: Policy, batch: Batch, temperature: float, *, entropy_grad: bool = False) -> Scores:
    """Scores (N, T) of a batch's ids at the sampling temperature; log-probs carry gradient where it is enabled."""
    return score(
        policy.model,
        batch.prefix_ids_NP,
        batch.prefix_len_N,
        batch.ids_NT,
        batch.length_N,
        temperature=temperature,
        entropy_grad=entropy_grad,
    )


def score_ids(
    policy: Policy, prefixes: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], temperature: float
) -> tuple[Scores, torch.Tensor]:
    """Scores of plain id lists and the mask (N, T) of the ids that exist."""
    prefix, prefix_len = _padded(prefixes, policy.pad_id)
    ids, length = _padded(completions, policy.pad_id)
    mask = (torch.arange(ids.shape[1])[None, :] < length[:, None]).float()
    return score(policy.model, prefix, prefix_len, ids, length, temperature=temperature), mask


def _padded(rows: Sequence[Sequence[int]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    length = torch.tensor([len(r) for r in rows], dtype=torch.long)
    out = torch.full((len(rows), int(length.max()) if len(rows) else 0), pad, dtype=torch.long)
    for i, r in enumerate(rows):
        out[i, : len(r)] = torch.tensor(r, dtype=torch.long)
    return out, length
