"""The sampling distribution: from logits to a token and its log-probability."""

from __future__ import annotations

import math

import torch

from trainer.rollout.sampler import SamplingParams


def sampling_logprobs(logits_RV: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Log-probabilities (R, V) in fp32 after temperature, top-k, min-p and top-p; removed tokens have -inf.

    Temperature > 0. Ties at the top-k border are all kept, so that the set does not depend on an unstable sort. top-p
    keeps every token before which less than ``top_p`` mass lies in descending order.
    """
    logits = logits_RV.float() / params.temperature if params.temperature != 1.0 else logits_RV.float()
    if 0 < params.top_k < logits.shape[-1]:
        border = logits.topk(params.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < border, -torch.inf)
    if params.min_p > 0.0:
        border = logits.max(dim=-1, keepdim=True).values + math.log(params.min_p)
        logits = logits.masked_fill(logits < border, -torch.inf)
    if params.top_p < 1.0:
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        mass = ordered.double().softmax(-1)
        drop = (mass.cumsum(-1) - mass) >= params.top_p
        drop[:, 0] = False
        logits = logits.masked_fill(torch.zeros_like(drop).scatter_(1, order, drop), -torch.inf)
    return logits.log_softmax(-1)


def inverse_cdf(logprobs_RV: torch.Tensor, uniform_R: torch.Tensor) -> torch.Tensor:
    """Token ids (R,): the first token whose cumulative probability exceeds the row's uniform number (fp64).

    A token of probability zero is never chosen: the target stays below the total, and the first strictly larger
    cumulative sum belongs to a token with mass.
    """
    cumulative = logprobs_RV.double().exp_().cumsum(-1)
    total = cumulative[:, -1]
    target = torch.minimum(uniform_R * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, target[:, None], right=True)[:, 0]


def choose(
    logits_RV: torch.Tensor, uniform_R: torch.Tensor, params: SamplingParams
) -> tuple[torch.Tensor, torch.Tensor]:
    """Next tokens (R,) int64 and their log-probabilities (R,) fp32 under the sampling distribution."""
    if params.temperature == 0:
        tokens = logits_RV.argmax(-1)
        return tokens, torch.zeros(tokens.shape, device=tokens.device)
    logprobs = sampling_logprobs(logits_RV, params)
    tokens = inverse_cdf(logprobs, uniform_R)
    return tokens, logprobs.gather(1, tokens[:, None])[:, 0]
