"""The forward pass over samples: current log-probs and entropies, aligned with the samples' own ids.

Here alone a batch meets a policy's device: ids go there, scores (N, T) come back to the CPU in fp32, gradients included, so
that everything else of the loop computes on the CPU whatever the policy is on. These tensors are small; logits and states
never leave the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from trainer.core.types import Batch
from trainer.policy.adapters import using
from trainer.policy.load import Policy
from trainer.policy.scoring import Scores, score
from trainer.policy.tree_scoring import score_trees
from trainer.policy.truncation import Fixed, Kept, Truncation


def score_batch(
    policy: Policy,
    batch: Batch,
    temperature: float,
    *,
    entropy_grad: bool = False,
    heads: Mapping[str, torch.nn.Module] | None = None,
    truncation: Truncation | None = None,
    collision: bool = False,
    through: Callable[..., Scores] | None = None,
) -> Scores:
    """Scores (N, T) of a batch's ids at the sampling temperature, over the tokens that the batch keeps; log-probs carry
    gradient where it is enabled. ``through`` calls the function that scores where the weights lie in shares."""
    if truncation is None and batch.kept is not None:
        truncation = Fixed(Kept.joined(batch.kept))
    return _scores(
        policy,
        (batch.prefix_ids_NP, batch.prefix_len_N, batch.ids_NT, batch.length_N),
        parents=batch.parents_NT,
        temperature=temperature,
        entropy_grad=entropy_grad,
        heads=heads,
        truncation=truncation,
        collision=collision,
        through=through,
    )


def _scores(
    policy: Policy,
    tensors: tuple[torch.Tensor, ...],
    *,
    parents: torch.Tensor | None = None,
    through: Callable[..., Scores] | None = None,
    **options: Any,
) -> Scores:
    """`score` of CPU tensors, or `score_trees` where there are parents, where and as the policy computes; what comes back is
    on the CPU."""
    placed = [t.to(policy.device) for t in (*tensors, *(() if parents is None else (parents,)))]
    function = score if parents is None else score_trees
    with using(policy), policy.computing():
        if through is None:
            found = function(policy.model, *placed, **options)
        else:
            found = through(function, *placed, **options)
    heads = {name: value.cpu() for name, value in found.heads.items()}
    collision = None if found.collision_NT is None else found.collision_NT.cpu()
    return Scores(found.logprobs_NT.cpu(), found.entropy_NT.cpu(), heads, collision)


def score_ids(
    policy: Policy,
    prefixes: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    temperature: float,
    *,
    through: Callable[..., Scores] | None = None,
) -> tuple[Scores, torch.Tensor]:
    """Scores of plain id lists and the mask (N, T) of the ids that exist."""
    prefix, prefix_len = _padded(prefixes, policy.pad_id)
    ids, length = _padded(completions, policy.pad_id)
    mask = (torch.arange(ids.shape[1])[None, :] < length[:, None]).float()
    return _scores(policy, (prefix, prefix_len, ids, length), temperature=temperature, through=through), mask


def _padded(rows: Sequence[Sequence[int]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    length = torch.tensor([len(r) for r in rows], dtype=torch.long)
    out = torch.full((len(rows), int(length.max()) if len(rows) else 0), pad, dtype=torch.long)
    for i, r in enumerate(rows):
        out[i, : len(r)] = torch.tensor(r, dtype=torch.long)
    return out, length
