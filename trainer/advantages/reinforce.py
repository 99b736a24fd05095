"""REINFORCE with a baseline that doesn't depend on the sample it judges (Williams, 1992)."""

from __future__ import annotations

from typing import Any

import torch


def reward_minus(reward_N: torch.Tensor, baseline: float) -> torch.Tensor:
    """R − b, (N,); 0 where there is no verdict (NaN)."""
    return torch.where(torch.isnan(reward_N), 0.0, reward_N - baseline)


def batch_mean(reward_N: torch.Tensor) -> float:
    """Mean of the rewards with a verdict; 0 without any."""
    judged = reward_N[~torch.isnan(reward_N)]
    return float(judged.double().mean()) if len(judged) else 0.0


def moving_average(memory: dict[str, Any], reward_N: torch.Tensor, decay: float) -> float:
    """The average of earlier batches, 0 before the first; moves ``memory["baseline"]`` on by this batch afterwards:
    b ← β·b + (1 − β)·mean. A batch without a verdict leaves it."""
    before = float(memory.get("baseline", 0.0))
    if bool((~torch.isnan(reward_N)).any()):
        memory["baseline"] = decay * before + (1 - decay) * batch_mean(reward_N)
    return before
