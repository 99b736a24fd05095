"""Which channels of a projection stand out, by their activations. Source: the longact card (arXiv 2604.14922)."""

from __future__ import annotations

import math
import random
from typing import Literal

import torch

from trainer.policy.hooks import Channels

Aggregator = Literal["mean", "max", "rms"]
Choice = Literal["top", "bottom", "random", "all"]
Scope = Literal["per_layer", "per_head", "global"]


def saliency(channels: Channels, aggregator: Aggregator) -> torch.Tensor:
    """s (d,): mean of |x| over tokens, its largest value, or the root mean square; NaN without a token."""
    if not channels.count:
        return torch.full_like(channels.absolute, torch.nan)
    if aggregator == "max":
        return channels.largest
    if aggregator == "rms":
        return (channels.squared / channels.count).sqrt()
    return channels.absolute / channels.count


def chosen(saliency_d: torch.Tensor, share: float, choice: Choice, rng: random.Random) -> torch.Tensor:
    """Mask (d,) of k = max(1, ⌈share·d⌉) channels: the most salient (ties: the lower index), the least, or any."""
    d = len(saliency_d)
    mask = torch.zeros(d, dtype=torch.bool)
    if choice == "all":
        return ~mask
    # Without the rounding .3·10 = 3.0000000000000004 would count as 4.
    k = max(1, math.ceil(round(share * d, 9)))
    if choice == "random":
        order = torch.tensor(rng.sample(range(d), k))
    else:
        order = torch.argsort(saliency_d, descending=choice == "top", stable=True)[:k]
    mask[order] = True
    return mask


def masks(
    saliency_of: dict[str, torch.Tensor], share: float, choice: Choice, scope: Scope, head_dim: int, rng: random.Random
) -> dict[str, torch.Tensor]:
    """A mask for each projection: chosen within it, within each of its heads of ``head_dim`` channels, or among the
    channels of all of them together."""
    if scope == "global":
        joined = chosen(torch.cat(list(saliency_of.values())), share, choice, rng)
        parts = joined.split([len(s) for s in saliency_of.values()])
        return dict(zip(saliency_of, parts, strict=True))
    if scope == "per_head":
        return {
            name: torch.cat([chosen(head, share, choice, rng) for head in s.split(head_dim)])
            for name, s in saliency_of.items()
        }
    return {name: chosen(s, share, choice, rng) for name, s in saliency_of.items()}


def jaccard(a: torch.Tensor, b: torch.Tensor) -> float:
    """|A ∩ B| / |A ∪ B| of two masks; NaN where both are empty."""
    union = int((a | b).sum())
    return int((a & b).sum()) / union if union else math.nan


def standing_out(saliency_d: torch.Tensor) -> float:
    """Largest value over the median; NaN where the median is 0."""
    median = float(saliency_d.median())
    return float(saliency_d.max()) / median if median else math.nan


def energy(saliency_d: torch.Tensor, mask: torch.Tensor) -> float:
    """Share of Σs² in the mask; NaN where all are 0."""
    total = float((saliency_d**2).sum())
    return float((saliency_d[mask] ** 2).sum()) / total if total else math.nan
