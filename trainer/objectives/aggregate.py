"""The only file that divides a loss. Every term is divided by global counts of the whole optimiser step.

So any split into micro-batches gives the same gradient: micro-batches hold partial sums, and the denominators are those
of the step, known before the first forward pass. A sequence is a trajectory, in however many samples it comes. Sequences
without a trained token count nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch

from trainer.core.slots import Term
from trainer.core.types import Batch

MASK = "mask/"


@dataclass(frozen=True)
class Denominators:
    """Counts of one optimiser step: trained tokens, sequences and groups with at least one, and the length constant;
    ``lengths`` are the trained tokens of each trajectory, by `Batch.trajectory_ids`, and ``among`` the same counts for the
    tokens of each "mask/…" column."""

    tokens: int
    sequences: int
    groups: int
    max_length: int
    among: Mapping[str, Denominators] = field(default_factory=dict)
    lengths: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: Batch, *, max_length: int, count_empty: bool = False) -> Denominators:
        """Counts of a whole mini-batch. ``max_length`` is the token limit of completions (Dr. GRPO's constant);
        ``count_empty`` counts sequences without a trained token too."""
        masks = {k: batch.mask_NT * v for k, v in batch.columns.items() if k.startswith(MASK)}
        among = {k: cls._of(batch, mask_NT, max_length, False) for k, mask_NT in masks.items()}
        return replace(cls._of(batch, batch.mask_NT, max_length, count_empty), among=among)

    @classmethod
    def _of(cls, batch: Batch, mask_NT: torch.Tensor, max_length: int, count_empty: bool) -> Denominators:
        trained = mask_NT.sum(1).tolist()
        lengths: dict[int, float] = {}
        for trajectory, tokens in zip(batch.trajectory_ids, trained, strict=True):
            lengths[trajectory] = lengths.get(trajectory, 0.0) + tokens
        alive = sum(tokens > 0 or count_empty for tokens in lengths.values())
        groups = {g for g, tokens in zip(batch.group_ids, trained, strict=True) if tokens > 0 or count_empty}
        return cls(int(mask_NT.sum()), alive, len(groups), max_length, lengths=lengths)

    def lengths_of(self, batch: Batch) -> torch.Tensor:
        """Trained tokens (N,) of each row's trajectory, all of its rows together."""
        return torch.tensor([self.lengths[t] for t in batch.trajectory_ids])


Reduction = Callable[[torch.Tensor, torch.Tensor, Denominators], torch.Tensor]


def _token_mean(masked_NT: torch.Tensor, length_N: torch.Tensor, counts: Denominators) -> torch.Tensor:
    return masked_NT.sum() / max(counts.tokens, 1)


def _sequence_mean(masked_NT: torch.Tensor, length_N: torch.Tensor, counts: Denominators) -> torch.Tensor:
    return (masked_NT.sum(1) / length_N.clamp(min=1)).sum() / max(counts.sequences, 1)


def _sequence_sum(masked_NT: torch.Tensor, length_N: torch.Tensor, counts: Denominators) -> torch.Tensor:
    return masked_NT.sum() / max(counts.sequences, 1)


def _constant_length(masked_NT: torch.Tensor, length_N: torch.Tensor, counts: Denominators) -> torch.Tensor:
    return masked_NT.sum() / (max(counts.sequences, 1) * counts.max_length)


def _token_sum(masked_NT: torch.Tensor, length_N: torch.Tensor, counts: Denominators) -> torch.Tensor:
    return masked_NT.sum()


AGGREGATIONS: dict[str, Reduction] = {
    "token-mean": _token_mean,
    "seq-mean-token-mean": _sequence_mean,
    "seq-mean-token-sum": _sequence_sum,
    "seq-mean-token-sum-norm": _constant_length,
    "token-sum": _token_sum,
}


def reduce_term(term: Term, mask_NT: torch.Tensor, counts: Denominators, micro: Batch | None = None) -> torch.Tensor:
    """The term's share of the loss on these rows; summed over a step's micro-batches it is coefficient × the mean.
    ``micro`` are the rows; without them each is a trajectory of its own, and no term may be about a part of the tokens.

    token-mean: Σ m·ℓ / tokens · seq-mean-token-mean: Σᵢ (Σ m·ℓ / Σ m) / sequences · seq-mean-token-sum: Σ m·ℓ / sequences
    · seq-mean-token-sum-norm: Σ m·ℓ / (sequences × max_length), TRL's Dr. GRPO · token-sum: Σ m·ℓ. With nothing to divide
    by the result is 0 with a gradient path, never NaN.
    """
    value = term.value
    if term.aggregation is None:
        if value.ndim != 1:
            raise ValueError(f"term {term.name!r}: a sequence-level term must be (N,), found {tuple(value.shape)}")
        divisor = counts.sequences if term.denominator == "sequences" else counts.groups
        return term.coefficient * value.sum() / max(divisor, 1)
    if value.shape != mask_NT.shape:
        raise ValueError(f"term {term.name!r}: expected {tuple(mask_NT.shape)}, found {tuple(value.shape)}")
    if term.aggregation not in AGGREGATIONS:
        raise ValueError(f"unknown aggregation {term.aggregation!r}; known: {', '.join(AGGREGATIONS)}")
    if term.among is not None:
        assert micro is not None
        counts, mask_NT = counts.among[term.among], mask_NT * micro.columns[term.among]
    masked = torch.where(mask_NT > 0, value * mask_NT, 0.0)
    length_N = mask_NT.sum(1) if micro is None else counts.lengths_of(micro)
    return term.coefficient * AGGREGATIONS[term.aggregation](masked, length_N, counts)
