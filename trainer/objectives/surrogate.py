"""Policy-gradient surrogates per token, to be minimised. Source: methods' base reference, section 3.

``ratio`` is (N, T) or (N, 1) from `trainer.objectives.ratio`, ``advantage`` likewise; results broadcast to (N, T).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from trainer.contract.algorithm import AlgorithmSection
from trainer.objectives.ratio import LOG_RATIO_LIMIT, RATIOS

SAPO_TEMPERATURES = (1.0, 1.05)
"""τ for A > 0 and for the rest (arXiv 2511.20347, TRL's defaults)."""
VESPO_GAMMA = ((2.0, 3.0), (3.0, 2.0))
"""(k, λ) for A ≥ 0 and for A < 0 (TRL's defaults)."""
LOG_WEIGHT_FLOOR = -18.420680743952367
"""log(1e-8), the least log-ratio that VESPO tells apart from 0."""


@dataclass(frozen=True)
class Tokens:
    """What a surrogate works on. ``weight`` is the sampler correction (N, T) or (N, 1), None without one."""

    logprobs_NT: torch.Tensor
    old_NT: torch.Tensor
    mask_NT: torch.Tensor
    advantage: torch.Tensor
    ratio: torch.Tensor
    weight: torch.Tensor | None = None


def clipped(
    ratio: torch.Tensor, advantage: torch.Tensor, *, epsilon: float, epsilon_high: float, dual_clip: float | None = None
) -> torch.Tensor:
    """PPO/GRPO: max(−Aρ, −A·clip(ρ, 1−ε, 1+ε_high)); with ``dual_clip`` c, at most −A·c where A < 0."""
    loss = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - epsilon, 1 + epsilon_high))
    if dual_clip is not None:
        loss = torch.where(advantage < 0, torch.minimum(loss, -advantage * dual_clip), loss)
    return loss


def cispo(
    logprobs_NT: torch.Tensor, ratio: torch.Tensor, advantage: torch.Tensor, *, cap: float, floor: float = 0.0
) -> torch.Tensor:
    """CISPO (arXiv 2506.13585): −sg[clip(ρ, floor, cap)]·A·ℓ; no token loses its gradient."""
    return -ratio.detach().clamp(floor, cap) * advantage * logprobs_NT


def reinforce(logprobs_NT: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    """−A·ℓ, without a ratio."""
    return -advantage * logprobs_NT


def sapo(ratio: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    """SAPO (arXiv 2511.20347): −A·σ(τ(ρ − 1))·4/τ, a soft gate in place of the clip."""
    positive, other = SAPO_TEMPERATURES
    tau = torch.where(advantage > 0, ratio.new_tensor(positive), ratio.new_tensor(other))
    return -advantage * torch.sigmoid(tau * (ratio - 1)) * 4 / tau


def vespo(t: Tokens) -> torch.Tensor:
    """VESPO: −sg[φ(W)]·A·ℓ with W the product of the sequence's ratios (times its sampler correction) and
    φ = e^λ·W^k·e^(−λW), which is 1 at W = 1."""
    with torch.no_grad():
        token = (t.logprobs_NT - t.old_NT).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        log_w = torch.where(t.mask_NT > 0, token, 0.0).sum(1, keepdim=True)
        if t.weight is not None:
            log_w = log_w + t.weight.log().clamp(LOG_WEIGHT_FLOOR, LOG_RATIO_LIMIT).sum(1, keepdim=True)
        log_w = log_w.clamp(LOG_WEIGHT_FLOOR, LOG_RATIO_LIMIT)
        (k_up, lam_up), (k_down, lam_down) = VESPO_GAMMA
        k = torch.where(t.advantage >= 0, k_up, k_down).to(log_w.dtype)
        lam = torch.where(t.advantage >= 0, lam_up, lam_down).to(log_w.dtype)
        phi = (lam + k * log_w - lam * log_w.exp()).exp()
    return -phi * t.advantage * t.logprobs_NT


SURROGATES: dict[str, Callable[[Tokens, AlgorithmSection], torch.Tensor]] = {
    "clip": lambda t, a: clipped(
        t.ratio, t.advantage, epsilon=a.epsilon, epsilon_high=a.epsilon_high, dual_clip=a.dual_clip
    ),
    "cispo": lambda t, a: cispo(
        t.logprobs_NT,
        t.ratio,
        t.advantage,
        cap=1 + a.epsilon_high if a.cispo_cap is None else a.cispo_cap,
        floor=a.cispo_floor,
    ),
    "reinforce": lambda t, a: reinforce(t.logprobs_NT, t.advantage),
    "sapo": lambda t, a: sapo(t.ratio, t.advantage),
    "vespo": lambda t, a: vespo(t),
}


def surrogate(
    a: AlgorithmSection,
    logprobs_NT: torch.Tensor,
    old_NT: torch.Tensor,
    advantage: torch.Tensor,
    mask_NT: torch.Tensor,
    weight: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The section's surrogate (N, T), times the sampler correction where there is one, and the ratio that it used (N, T)
    or (N, 1). ``advantage`` is (N, T) or (N, 1)."""
    if logprobs_NT.ndim != 2 or not logprobs_NT.shape == old_NT.shape == mask_NT.shape:
        raise ValueError(
            f"log-probs and mask must be (N, T), found {tuple(logprobs_NT.shape)}, {tuple(old_NT.shape)} and "
            f"{tuple(mask_NT.shape)}"
        )
    if advantage.shape not in (logprobs_NT.shape, (logprobs_NT.shape[0], 1)):
        raise ValueError(f"advantages must be (N, T) or (N, 1), found {tuple(advantage.shape)}")
    ratio = RATIOS[a.ratio](logprobs_NT, old_NT, mask_NT)
    loss = SURROGATES[a.surrogate](Tokens(logprobs_NT, old_NT, mask_NT, advantage, ratio, weight), a)
    if weight is not None and a.surrogate != "vespo":  # which has taken it in
        loss = loss * weight
    return loss.expand_as(logprobs_NT), ratio
