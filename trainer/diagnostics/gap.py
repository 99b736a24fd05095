"""How far sampler and trainer are from one policy: statistics of their log-probs on the tokens that the sampler drew."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from trainer.objectives.kl import kl_estimate

_RATIO_LIMIT = 20.0


@dataclass
class Gap:
    """Sums in fp64 over the tokens seen so far; the parts in which they come change nothing but rounding.

    With w = π_trainer/π_sampler (its logarithm cut at ±20) at a token: the mean and largest |log w|; KL(sampler‖trainer)
    by k1 = −log w and k3 = w − 1 − log w; and the effective sample size (Σw)²/(n·Σw²), in (0, 1].
    """

    tokens: int = 0
    absolute: float = 0.0
    largest: float = 0.0
    k1: float = 0.0
    k3: float = 0.0
    ratio: float = 0.0
    ratio_squared: float = 0.0

    def add(self, trainer_NT: torch.Tensor, sampler_NT: torch.Tensor) -> None:
        """Log-probs (N, T) of the same tokens under both; tokens that the sampler did not draw are NaN there."""
        drawn = ~torch.isnan(sampler_NT)
        if not bool(drawn.any()):
            return
        trainer, sampler = trainer_NT[drawn].double(), sampler_NT[drawn].double()
        difference = trainer - sampler
        ratio = difference.clamp(-_RATIO_LIMIT, _RATIO_LIMIT).exp()
        self.tokens += difference.numel()
        self.absolute += float(difference.abs().sum())
        self.largest = max(self.largest, float(difference.abs().max()))
        self.k1 += float(kl_estimate(sampler, trainer, "k1").sum())
        self.k3 += float(kl_estimate(sampler, trainer, "k3").sum())
        self.ratio += float(ratio.sum())
        self.ratio_squared += float((ratio**2).sum())

    def merge(self, other: Gap) -> None:
        """Adds what another one has seen."""
        for name in ("tokens", "absolute", "k1", "k3", "ratio", "ratio_squared"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.largest = max(self.largest, other.largest)

    def metrics(self) -> dict[str, float]:
        """By metric name; none without tokens, and no effective sample size where all weights are 0 or infinite."""
        if not self.tokens:
            return {}
        out = {
            "sampling/sampling_logp_difference/mean": self.absolute / self.tokens,
            "sampling/sampling_logp_difference/max": self.largest,
            "sampling/kl/k1": self.k1 / self.tokens,
            "sampling/kl/k3": self.k3 / self.tokens,
        }
        size = self.ratio**2 / (self.tokens * self.ratio_squared) if self.ratio_squared else math.nan
        return {**out, "sampling/effective_sample_size": size} if math.isfinite(size) else out
