"""AdamW as the runs use it, its schedule as a pure function of the step, and its state as named tensors."""

from __future__ import annotations

import math
from typing import Any

import torch

from trainer.contract.config import OptimizerSection
from trainer.core.errors import CheckpointError
from trainer.policy.shards import gathered, like


def make_optimizer(model: torch.nn.Module, config: OptimizerSection) -> torch.optim.AdamW:
    """Decoupled weight decay on matrices only (norms and biases have one dimension)."""
    named = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in named if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in named if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(config.beta1, config.beta2), foreach=True)


def learning_rate(config: OptimizerSection, step: int, total: int, *, base: float | None = None) -> float:
    """Rate of optimiser step ``step`` (from 0) of ``total``: linear warm-up, then constant or a cosine to a tenth.
    ``base`` takes the place of the configured rate (a head's own)."""
    rate = config.learning_rate if base is None else base
    if step < config.warmup_steps:
        return rate * (step + 1) / config.warmup_steps
    if config.schedule == "cosine":
        done = (step - config.warmup_steps) / max(1, total - config.warmup_steps)
        return rate * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))
    return rate


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The rate of every parameter group."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_tensors(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Moments and step counts by ``<parameter>.<slot>``, whole and on the CPU; empty before the first step."""
    names: dict[torch.Tensor, str] = {p: n for n, p in model.named_parameters()}
    return {
        f"{names[p]}.{slot}": gathered(value.detach()).cpu().clone().contiguous()
        for p, state in optimizer.state.items()
        for slot, value in state.items()
    }


def load_optimizer_tensors(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]
) -> None:
    """Puts saved moments back. Raises CheckpointError for a tensor of an unknown parameter or another shape."""
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        name, _, slot = key.rpartition(".")
        parameter = parameters.get(name)
        if parameter is None or (value.ndim and value.shape != parameter.shape):
            raise CheckpointError(
                f"optimiser state {key!r} of shape {tuple(value.shape)} fits no parameter of the policy"
            )
        state: dict[str, Any] = optimizer.state[parameter]
        # AdamW's step counts (no dimension) stay on the CPU.
        state[slot] = value.clone() if value.ndim == 0 else like(parameter, value)
