"""Extra outputs of a policy: small networks on the hidden state from which the next token is drawn.

A head shares the policy's trunk, so its loss trains both. It is an auxiliary network of the run's state, with an optimiser
of its own, and no part of the policy folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from trainer.contract.algorithm import AlgorithmSection

VALUE = "value"


class ValueHead(nn.Module):
    """V(s) = w·h + b of the state before a token, in fp32; zero at the start, so that the first advantages are returns."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.out = nn.Linear(hidden_size, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """(…, hidden) → (…)."""
        with torch.autocast(states.device.type, enabled=False):
            return self.out(states.float())[..., 0]


def new_heads(algorithm: AlgorithmSection, model: Any) -> dict[str, nn.Module]:
    """The heads that a base algorithm asks for, fresh: GAE needs a value head."""
    if algorithm.advantage != "gae":
        return {}
    weight = model.get_output_embeddings().weight
    return {VALUE: ValueHead(weight.shape[1]).to(weight.device)}


def outputs(heads: Mapping[str, nn.Module], states_F: torch.Tensor) -> dict[str, torch.Tensor]:
    """Each head on flat states (F, hidden): (F,)."""
    return {name: head(states_F) for name, head in heads.items()}
