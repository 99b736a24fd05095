"""Generalised advantage estimation (arXiv 1506.02438) on masked tokens."""

from __future__ import annotations

import torch


def gae(
    reward_NT: torch.Tensor, value_NT: torch.Tensor, mask_NT: torch.Tensor, *, gamma: float, lam: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and returns, both (N, T), not whitened.

    δ_t = r_t + γ·V_{t+1} − V_t, Â_t = δ_t + γλ·Â_{t+1}, return = Â + V; the value after the last token is 0. A token that
    is not trained (a tool's answer) is passed over: V and Â of the next trained one carry through, so that it adds no
    error and does not discount. Its own entries hold what is carried and must be masked.
    """
    if not reward_NT.shape == value_NT.shape == mask_NT.shape or reward_NT.ndim != 2:
        raise ValueError(
            f"expected rewards, values and mask (N, T), found {tuple(reward_NT.shape)}, {tuple(value_NT.shape)}, "
            f"{tuple(mask_NT.shape)}"
        )
    reward, value = reward_NT.double(), value_NT.double()
    next_value = torch.zeros(reward.shape[0], dtype=torch.double)
    running = torch.zeros_like(next_value)
    advantage = torch.zeros_like(reward)
    for t in reversed(range(reward.shape[1])):
        trained = mask_NT[:, t] > 0
        delta = reward[:, t] + gamma * next_value - value[:, t]
        running = torch.where(trained, delta + gamma * lam * running, running)
        next_value = torch.where(trained, value[:, t], next_value)
        advantage[:, t] = running
    return advantage.to(reward_NT.dtype), (advantage + value).to(reward_NT.dtype)
