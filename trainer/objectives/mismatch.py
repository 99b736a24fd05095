"""Correction of the gap between sampler and trainer: the weight sg[π_trainer/π_sampler], bounded (TIS, MIS).

Source: methods' base reference, section 3. A token that the sampler has not scored (NaN) weighs 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

LOG_LIMIT = 20.0


@dataclass(frozen=True)
class Correction:
    """``weight`` (N, T) or (N, 1) after the bounds, ``raw`` before them, ``outside`` where they acted."""

    weight: torch.Tensor
    raw: torch.Tensor
    outside: torch.Tensor


def correction(
    old_NT: torch.Tensor,
    sampler_NT: torch.Tensor,
    mask_NT: torch.Tensor,
    *,
    mode: str,
    low: float | None,
    high: float | None,
) -> Correction:
    """``mode``: token_ or sequence_ (the product over trained tokens), _truncate (cut to the bounds) or _mask (0 outside
    them). Weights of tokens that are not trained are 1."""
    level, _, action = mode.partition("_")
    if level not in ("token", "sequence") or action not in ("truncate", "mask"):
        raise ValueError(f"unknown mismatch correction {mode!r}; expected token|sequence _ truncate|mask")
    difference = torch.where(mask_NT > 0, old_NT - sampler_NT, 0.0).nan_to_num(nan=0.0)
    if level == "sequence":
        difference = difference.sum(1, keepdim=True)
    raw = difference.clamp(-LOG_LIMIT, LOG_LIMIT).exp()
    least, most = (-math.inf if low is None else low), (math.inf if high is None else high)
    outside = (raw < least) | (raw > most)
    weight = raw.clamp(least, most) if action == "truncate" else torch.where(outside, 0.0, raw)
    return Correction(weight.detach(), raw.detach(), outside)
