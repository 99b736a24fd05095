"""Whitening over the batch's trained tokens, and discounted returns: REINFORCE++ (arXiv 2501.03262)."""

from __future__ import annotations

import torch

GUARD = 1e-8
"""Added to the variance, as verl does."""


def whiten(value_NT: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
    """(x − μ)/√(σ² + 1e-8) over all masked tokens, σ² unbiased; 0 elsewhere, and everywhere where all values are equal.

    Raises ValueError for a single masked token, which has no variance.
    """
    if value_NT.shape != mask_NT.shape:
        raise ValueError(f"expected values and mask (N, T), found {tuple(value_NT.shape)} and {tuple(mask_NT.shape)}")
    chosen = mask_NT > 0
    x = value_NT[chosen].double()
    if len(x) == 0:
        return torch.zeros_like(value_NT)
    if len(x) == 1:
        raise ValueError("whitening over a single trained token; expected more: raise the number of rollouts")
    out = torch.zeros(value_NT.shape, dtype=torch.double)
    if bool(x.min() < x.max()):
        out[chosen] = (x - x.mean()) * torch.rsqrt(x.var() + GUARD)
    return out.to(value_NT.dtype)


def discounted_returns(reward_NT: torch.Tensor, mask_NT: torch.Tensor, gamma: float) -> torch.Tensor:
    """Σ γ^k r over the trained tokens from t on, (N, T); tokens that are not trained neither count nor discount."""
    running = torch.zeros(reward_NT.shape[0], dtype=torch.double)
    out = torch.zeros(reward_NT.shape, dtype=torch.double)
    for t in reversed(range(reward_NT.shape[1])):
        trained = mask_NT[:, t] > 0
        running = torch.where(trained, reward_NT[:, t].double() + gamma * running, running)
        out[:, t] = torch.where(trained, running, 0.0)
    return out.to(reward_NT.dtype)
