"""KL estimators per token on samples of the current policy (Schulman's k1, k2, k3). u = ℓ − ℓ_ref, in nats."""

from __future__ import annotations

import torch

LIMIT = 20.0


def kl_estimate(logprobs_NT: torch.Tensor, reference_NT: torch.Tensor, kind: str) -> torch.Tensor:
    """k1 = u (no gradient in expectation: useless as a loss), k2 = u²/2 (gradient of KL(π‖ref)),
    k3 = e^(−u) + u − 1 (gradient of KL(ref‖π), never negative). Shapes (N, T)."""
    if logprobs_NT.shape != reference_NT.shape:
        raise ValueError(f"shapes differ: {tuple(logprobs_NT.shape)} and {tuple(reference_NT.shape)}")
    u = logprobs_NT - reference_NT
    if kind == "k1":
        return u
    if kind == "k2":
        return u**2 / 2
    if kind == "k3":
        return (-u).clamp(-LIMIT, LIMIT).exp() + u - 1
    raise ValueError(f"unknown KL estimator {kind!r}; known: k1, k2, k3")
