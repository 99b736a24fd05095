"""The value head's loss (PPO, arXiv 1707.06347)."""

from __future__ import annotations

import torch


def value_loss(
    value_NT: torch.Tensor, old_NT: torch.Tensor, returns_NT: torch.Tensor, clip: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """½·max[(V − R)², (clip(V, V_old ± ε) − R)²] per token (N, T), and where the clip acted. Without ``clip`` the plain
    square. Tokens whose return is NaN (no verdict) have loss 0 and no gradient."""
    if not value_NT.shape == old_NT.shape == returns_NT.shape:
        raise ValueError(
            f"expected values, old values and returns (N, T), found {tuple(value_NT.shape)}, {tuple(old_NT.shape)}, "
            f"{tuple(returns_NT.shape)}"
        )
    known = ~torch.isnan(returns_NT)
    target = torch.where(known, returns_NT, value_NT.detach())
    plain = (value_NT - target) ** 2
    if clip is None:
        return plain / 2 * known, torch.zeros_like(known)
    moved = (torch.clamp(value_NT, old_NT - clip, old_NT + clip) - target) ** 2
    return torch.maximum(plain, moved) / 2 * known, (moved > plain) & known


def explained_variance(value_NT: torch.Tensor, returns_NT: torch.Tensor, mask_NT: torch.Tensor) -> float:
    """1 − Var[R − V]/Var[R] over masked tokens with a return; NaN where the returns are constant."""
    chosen = (mask_NT > 0) & ~torch.isnan(returns_NT)
    value, returns = value_NT[chosen].double(), returns_NT[chosen].double()
    spread = float(returns.var(correction=0)) if len(returns) else 0.0
    return 1 - float((returns - value).var(correction=0)) / spread if spread else float("nan")
