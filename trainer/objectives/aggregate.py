"""The only file that divides a loss. Every term is divided by global counts of the whole optimiser step.

So any split into micro-batches gives the same gradient: micro-batches hold partial sums, and the denominators are those
of the step, known before the first forward pass. Sequences without a trained token count nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trainer.core.slots import Term
from trainer.core.types import Batch


@dataclass(frozen=True)
class Denominators:
    """Counts of one optimiser step: trained tokens, sequences and groups with at least one, and the length constant."""

    tokens: int
    sequences: int
    groups: int
    max_length: int

    @classmethod
    def of(cls, batch: Batch, *, max_length: int) -> Denominators:
        """Counts of a whole mini-batch. ``max_length`` is the token limit of completions (Dr. GRPO's constant)."""
        alive = batch.mask_NT.sum(1) > 0
        groups = {g for g, keep in zip(batch.group_ids, alive.tolist(), strict=True) if keep}
        return cls(int(batch.mask_NT.sum()), int(alive.sum()), len(groups), max_length)


def reduce_term(term: Term, mask_NT: torch.Tensor, counts: Denominators) -> torch.Tensor:
    """The term's share of the loss on these rows; summed over a step's micro-batches it is coefficient × the mean.

    token-mean: Σ m·ℓ / tokens · seq-mean-token-mean: Σᵢ (Σ m·ℓ / Σ m) / sequences · seq-mean-token-sum: Σ m·ℓ / sequences
    · seq-mean-token-sum-norm: Σ m·ℓ / (sequences × max_length), TRL's Dr. GRPO. With nothing to divide by the result is
    0 with a gradient path, never NaN.
    """
    value = term.value
    if term.aggregation is None:
        if value.ndim != 1:
            raise ValueError(f"term {term.name!r}: a sequence-level term must be (N,), found {tuple(value.shape)}")
        divisor = counts.sequences if term.denominator == "sequences" else counts.groups
        return term.coefficient * value.sum() / max(divisor, 1)
    if value.shape != mask_NT.shape:
        raise ValueError(f"term {term.name!r}: expected {tuple(mask_NT.shape)}, found {tuple(value.shape)}")
    masked = torch.where(mask_NT > 0, value * mask_NT, 0.0)
    if term.aggregation == "token-mean":
        total = masked.sum() / max(counts.tokens, 1)
    elif term.aggregation == "seq-mean-token-mean":
        total = (masked.sum(1) / mask_NT.sum(1).clamp(min=1)).sum() / max(counts.sequences, 1)
    elif term.aggregation == "seq-mean-token-sum":
        total = masked.sum() / max(counts.sequences, 1)
    elif term.aggregation == "seq-mean-token-sum-norm":
        total = masked.sum() / (max(counts.sequences, 1) * counts.max_length)
    else:
        raise ValueError(f"unknown aggregation {term.aggregation!r}")
    return term.coefficient * total
