"""Importance ratios π/π_old by level. Source: methods' base reference, section 3; GSPO arXiv 2507.18071.

All take current log-probs (N, T) with gradient, those at the start of the step without, and the mask (N, T) of trained
tokens. Log-ratios are clamped to ±20 (GSPO-token: at most 10), as in verl, so that no ratio is infinite.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

LOG_RATIO_LIMIT = 20.0
LOG_SEQUENCE_LIMIT = 10.0


def _bounded(log_ratio: torch.Tensor) -> torch.Tensor:
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def _log_ratio(logprobs_NT: torch.Tensor, old_NT: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
    # What is not trained may hold anything, and infinities times 0 are not 0.
    return torch.where(mask_NT > 0, logprobs_NT - old_NT, 0.0)


def token_ratio(logprobs_NT: torch.Tensor, old_NT: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
    """exp(ℓ − ℓ_old) per token (N, T); 1 where the mask is 0."""
    return _bounded(_log_ratio(logprobs_NT, old_NT, mask_NT)).exp()


def _mean(logprobs_NT: torch.Tensor, old_NT: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
    total = _log_ratio(logprobs_NT, old_NT, mask_NT).sum(1, keepdim=True)
    return total / mask_NT.sum(1, keepdim=True).clamp(min=1)


def sequence_ratio(logprobs_NT: torch.Tensor, old_NT: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
    """GSPO's geometric mean exp(mean_t (ℓ − ℓ_old)), (N, 1)."""
    return _bounded(_mean(logprobs_NT, old_NT, mask_NT)).exp()


def sequence_token_ratio(logprobs_NT: torch.Tensor, old_NT: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
    """GSPO-token: sg[s]·exp(ℓ − sg[ℓ]), (N, T): the value of GSPO's ratio, the gradient of each token's own log-prob."""
    log_ratio = logprobs_NT - logprobs_NT.detach() + _mean(logprobs_NT, old_NT, mask_NT).detach()
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_SEQUENCE_LIMIT).exp()


def sequence_sum_ratio(logprobs_NT: torch.Tensor, old_NT: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
    """The ratio of whole sequences exp(Σ_t (ℓ − ℓ_old)), (N, 1); TRL's RLOO."""
    return _bounded(_log_ratio(logprobs_NT, old_NT, mask_NT).sum(1, keepdim=True)).exp()


RATIOS: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "token": token_ratio,
    "sequence": sequence_ratio,
    "sequence_token": sequence_token_ratio,
    "sequence_sum": sequence_sum_ratio,
}
