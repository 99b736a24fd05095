"""Tiny random policies, made in milliseconds."""

from __future__ import annotations

from typing import Any

import torch

from trainer.policy.char_tokenizer import char_tokenizer
from trainer.policy.load import Policy, new_policy

ALPHABET = "0123456789+-*/=() abcdefghijklmnopqrstuvwxyz\n"
TINY: dict[str, Any] = {
    "family": "llama",
    "hidden_size": 32,
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "intermediate_size": 48,
    "max_positions": 256,
    "tie_embeddings": True,
}


def tiny_policy(*, seed: int = 0, alphabet: str = ALPHABET, scale: float = 8.0, **changes: Any) -> Policy:
    """A random policy (default: Llama, 2 layers × 32, grouped queries) over a character tokenizer.

    ``changes`` override ``TINY``. Matrices are multiplied by ``scale``, because the standard initialisation gives
    nearly uniform token distributions, on which a wrong attention mask would hardly show. Norm weights are made random
    too, so that leaving one out changes the output.
    """
    policy = new_policy({**TINY, **changes}, char_tokenizer(alphabet), seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if "norm" in name:
                weight.copy_(0.5 + torch.rand(weight.shape, generator=generator))
            elif weight.dim() == 1:
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.1)
            else:
                weight.mul_(scale)
    return policy
