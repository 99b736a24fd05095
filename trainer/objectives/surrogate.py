"""Policy-gradient surrogates per token, to be minimised. Source: methods' base reference, section 3.

All take log-probs (N, T) of the current policy with gradient, those at the start of the step without, advantages
(N, T) or (N, 1), and the mask (N, T) of trained tokens; all return (N, T). Log-ratios are clamped to ±20.
"""

from __future__ import annotations

import torch

LOG_RATIO_LIMIT = 20.0


def _check(logprobs_NT: torch.Tensor, old_NT: torch.Tensor, advantage: torch.Tensor) -> None:
    if logprobs_NT.ndim != 2 or logprobs_NT.shape != old_NT.shape:
        raise ValueError(f"log-probs must be (N, T) twice, found {tuple(logprobs_NT.shape)} and {tuple(old_NT.shape)}")
    if advantage.shape not in (logprobs_NT.shape, (logprobs_NT.shape[0], 1)):
        raise ValueError(f"advantages must be (N, T) or (N, 1), found {tuple(advantage.shape)}")


def token_ratio(logprobs_NT: torch.Tensor, old_NT: torch.Tensor) -> torch.Tensor:
    """exp(ℓ − ℓ_old) per token."""
    return (logprobs_NT - old_NT).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def sequence_ratio(logprobs_NT: torch.Tensor, old_NT: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
    """GSPO's geometric mean exp(mean_t (ℓ − ℓ_old)), (N, 1); arXiv 2507.18071."""
    mean = ((logprobs_NT - old_NT) * mask_NT).sum(1, keepdim=True) / mask_NT.sum(1, keepdim=True).clamp(min=1)
    return mean.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def clipped(
    ratio: torch.Tensor, advantage: torch.Tensor, *, epsilon: float, epsilon_high: float, dual_clip: float | None = None
) -> torch.Tensor:
    """PPO/GRPO: max(−Aρ, −A·clip(ρ, 1−ε, 1+ε_high)); with ``dual_clip`` c, at most −A·c where A < 0."""
    loss = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - epsilon, 1 + epsilon_high))
    if dual_clip is not None:
        loss = torch.where(advantage < 0, torch.minimum(loss, -advantage * dual_clip), loss)
    return loss


def cispo(logprobs_NT: torch.Tensor, ratio: torch.Tensor, advantage: torch.Tensor, *, cap: float) -> torch.Tensor:
    """CISPO (arXiv 2506.13585): −sg[min(ρ, cap)]·A·ℓ; no token loses its gradient."""
    return -ratio.detach().clamp(max=cap) * advantage * logprobs_NT


def reinforce(logprobs_NT: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    """−A·ℓ, without a ratio."""
    return -advantage * logprobs_NT


def surrogate(
    kind: str,
    logprobs_NT: torch.Tensor,
    old_NT: torch.Tensor,
    advantage: torch.Tensor,
    mask_NT: torch.Tensor,
    *,
    level: str,
    epsilon: float,
    epsilon_high: float,
    dual_clip: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The named surrogate (N, T) and the ratio it used (N, T or N, 1)."""
    _check(logprobs_NT, old_NT, advantage)
    ratio = sequence_ratio(logprobs_NT, old_NT, mask_NT) if level == "sequence" else token_ratio(logprobs_NT, old_NT)
    if kind == "clip":
        loss = clipped(ratio, advantage, epsilon=epsilon, epsilon_high=epsilon_high, dual_clip=dual_clip)
    elif kind == "cispo":
        loss = cispo(logprobs_NT, ratio, advantage, cap=1 + epsilon_high)
    elif kind == "reinforce":
        loss = reinforce(logprobs_NT, advantage)
    else:
        raise ValueError(f"unknown surrogate {kind!r}; known: clip, cispo, reinforce")
    return loss.expand_as(logprobs_NT), ratio
