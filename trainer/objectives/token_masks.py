"""Which tokens keep their policy term, besides the loss mask."""

from __future__ import annotations

import torch

HIGH_ENTROPY = "mask/high_entropy"
"""The column with the 0/1 of `high_entropy`."""


def high_entropy(entropy_NT: torch.Tensor, mask_NT: torch.Tensor, share: float) -> torch.Tensor:
    """1 on the given share of masked tokens with the highest entropy (ties at the border stay), else 0; arXiv 2506.01939.

    The border is the quantile over the tokens given, so give it the whole batch.
    """
    chosen = mask_NT > 0
    if not bool(chosen.any()):
        return torch.zeros_like(entropy_NT)
    border = torch.quantile(entropy_NT[chosen].float(), 1 - share)
    return ((entropy_NT >= border) & chosen).to(entropy_NT.dtype)


def on_policy_enough(
    advantage: torch.Tensor, logprobs_NT: torch.Tensor, sampler_NT: torch.Tensor, mask_NT: torch.Tensor, limit: float
) -> torch.Tensor:
    """1 where A ≥ 0 or the sequence's mean of log π_sampler − log π is at most ``limit``, else 0; DeepSeek-V3.2's
    off-policy sequence mask. Shaped like ``advantage``; tokens without a sampler's log-prob (NaN) say nothing."""
    gap = torch.where(mask_NT > 0, sampler_NT - logprobs_NT.detach(), 0.0).nan_to_num(nan=0.0)
    mean = gap.sum(1, keepdim=True) / mask_NT.sum(1, keepdim=True).clamp(min=1)
    return ((advantage >= 0) | (mean <= limit)).to(logprobs_NT.dtype)
