"""KL estimators per token on samples of the current policy (Schulman's k1, k2, k3). u = ℓ − ℓ_ref, in nats.

A ``+`` gives the value of the estimator and the gradient of k2, which is that of KL(π‖ref).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

LIMIT = 20.0
"""Largest exponent: beyond it k3 grows no more and has no gradient (a base that finds a token impossible)."""


def _k3(u: torch.Tensor) -> torch.Tensor:
    return (-u).clamp(-LIMIT, LIMIT).exp() + u - 1


def _straight_through(value: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    def estimate(u: torch.Tensor) -> torch.Tensor:
        backward = u**2 / 2
        return backward - backward.detach() + value(u.detach())

    return estimate


ESTIMATORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "k1": lambda u: u,
    "k2": lambda u: u**2 / 2,
    "k3": _k3,
    "k1+": _straight_through(lambda u: u),
    "k3+": _straight_through(_k3),
}


def kl_estimate(logprobs_NT: torch.Tensor, reference_NT: torch.Tensor, kind: str) -> torch.Tensor:
    """k1 = u (no gradient in expectation: useless as a loss), k2 = u²/2 (gradient of KL(π‖ref)),
    k3 = e^(−u) + u − 1 (gradient of KL(ref‖π), never negative), k1+ and k3+. Shapes (N, T)."""
    if logprobs_NT.shape != reference_NT.shape:
        raise ValueError(f"shapes differ: {tuple(logprobs_NT.shape)} and {tuple(reference_NT.shape)}")
    if kind not in ESTIMATORS:
        raise ValueError(f"unknown KL estimator {kind!r}; known: {', '.join(ESTIMATORS)}")
    return ESTIMATORS[kind](logprobs_NT - reference_NT)


def adapted(coefficient: float, kl: float, *, target: float, horizon: int, sequences: int) -> float:
    """The next adaptive coefficient (arXiv 1909.08593): β·(1 + clip(KL/target − 1, ±0.2)·sequences/horizon)."""
    error = min(max(kl / target - 1, -0.2), 0.2)
    return coefficient * (1 + error * sequences / horizon)
