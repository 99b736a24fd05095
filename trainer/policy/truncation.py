"""The trainer's side of truncated sampling: which tokens top-k, top-p and min-p keep at each position of a batch.

The sampler drew each token among those that its weights kept, renormalised. Log-probs can be compared only over one set of
tokens, so a batch's sets are found once, by the weights before its first update, which are those that sampled it; every
other pass (later steps, the reference) renormalises over the same ones (as DeepSeek-V3.2 keeps its sampling masks, arXiv
2512.02556, section 3.1). Ratios are then finite whatever becomes of the weights, and 1 where nothing has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from trainer.core.types import Batch

Keep = Callable[[torch.Tensor], torch.Tensor]
"""Logits (F, V) → mask (F, V) of the tokens that a truncated distribution keeps."""


class Truncation(Protocol):
    """What a forward pass leaves out of the distributions of F positions in a row."""

    def left_out(self, logits_FV: torch.Tensor, ids_F: torch.Tensor, first: int) -> torch.Tensor:
        """(F, V) true where a token has no probability; the positions are ``first``, ``first`` + 1, …"""
        ...


@dataclass(frozen=True)
class Kept:
    """The tokens kept at T positions: position t keeps the next ``counts_T[t]`` of ``ids``, or all tokens where that is 0.
    ``outside_T`` says where the drawn token had to be added."""

    counts_T: torch.Tensor
    ids: torch.Tensor
    outside_T: torch.Tensor

    def split(self, lengths: Sequence[int]) -> list[Kept]:
        """The sets of consecutive runs of positions."""
        counts, outside = self.counts_T.split(list(lengths)), self.outside_T.split(list(lengths))
        ids = self.ids.split([int(part.sum()) for part in counts])
        return [Kept(*part) for part in zip(counts, ids, outside, strict=True)]

    @classmethod
    def joined(cls, parts: Sequence[Kept]) -> Kept:
        """The sets of several runs, one after the other."""
        names = ("counts_T", "ids", "outside_T")
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in names))


class Finding:
    """Finds the sets of a batch where its tokens were sampled; elsewhere all tokens are kept.

    A drawn token is always kept. Sampler and trainer differ by rounding, so that one at the border may be outside the
    trainer's set.
    """

    def __init__(self, keep: Keep, batch: Batch) -> None:
        self._keep = keep
        self._sampled_F = torch.tensor([flag for sample in batch.samples for flag in sample.sampled])
        nothing = torch.zeros(0, dtype=torch.long)
        self._found = [Kept(nothing, nothing.int(), nothing.bool())]

    def left_out(self, logits_FV: torch.Tensor, ids_F: torch.Tensor, first: int) -> torch.Tensor:
        """See the protocol; asked once for each position, in order."""
        sampled = self._sampled_F[first : first + len(ids_F), None].to(logits_FV.device)
        keep, drawn = self._keep(logits_FV), ids_F[:, None]
        outside = sampled & ~keep.gather(1, drawn)
        keep = keep.scatter(1, drawn, True)
        found = keep & sampled
        self._found.append(Kept(found.sum(1).cpu(), found.nonzero()[:, 1].int().cpu(), outside[:, 0].cpu()))
        return ~keep & sampled

    @property
    def kept(self) -> Kept:
        """The sets of all positions seen."""
        return Kept.joined(self._found)


class Fixed:
    """Leaves out what is not in the given sets."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self._ends = kept.counts_T.cumsum(0)

    def left_out(self, logits_FV: torch.Tensor, ids_F: torch.Tensor, first: int) -> torch.Tensor:
        """See the protocol."""
        counts = self.kept.counts_T[first : first + len(ids_F)]
        begin = int(self._ends[first - 1]) if first else 0
        ids = self.kept.ids[begin : begin + int(counts.sum())].long()
        out = (counts > 0)[:, None].expand(logits_FV.shape).to(logits_FV.device).clone()
        out[torch.arange(len(counts)).repeat_interleave(counts), ids] = False
        return out
