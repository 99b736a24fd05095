"""A policy trained by several processes: weights, gradients and moments in shares (FSDP2), and a whole copy for all else.

The whole copy is what samples, is evaluated, hashed and saved, as if there were one process; it takes every optimiser step's
weights over from the shares. So each process holds, of P fp32 parameters in R processes: the copy (4·P bytes), the torch
sampler's packed weights (4·P), a share of weights, gradients and moments (16·P/R), and, during an update, all weights and
gradients once more (8·P), because the whole model is one unit of FSDP: the forward pass that computes a shared prompt once
reads the layers' weights itself, past the hooks by which single layers would gather theirs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from trainer.core.errors import ConfigError
from trainer.core.slots import Scores
from trainer.core.world import World
from trainer.policy.load import Policy


class _Scoring(nn.Module):
    """A forward pass as a module, which FSDP can wrap; heads are left out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, function: Callable[..., Scores], *tensors: torch.Tensor, **options: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        found = function(self.model, *tensors, **options)
        # FSDP wants no views: it hangs its hooks on what comes out.
        return found.logprobs_NT.clone(), found.entropy_NT.clone()


class Shards:
    """This process's share of a policy's weights, and the forward pass through the gathered ones."""

    def __init__(self, policy: Policy, world: World) -> None:
        # Imported here: one process alone needs none of it.
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        if policy.adapter is not None:
            raise ConfigError(
                "hardware.processes: the base checkpoint is an adapter, and adapters are trained by one process; set it to 1, "
                "or merge the adapter (python -m trainer merge)"
            )
        self.model: nn.Module = copy.deepcopy(policy.model).train()
        module: Any = _Scoring(self.model)
        fully_shard(module, mesh=init_device_mesh(policy.device.type, (world.size,)))
        # Losses are divided by counts of all processes, so that gradients are summed, not averaged.
        module.set_force_sum_reduction_for_comms(True)
        module.set_gradient_divide_factor(1.0)
        self._module = module

    def score(self, function: Callable[..., Scores], *tensors: torch.Tensor, last: bool, **options: Any) -> Scores:
        """``function`` (such as `trainer.policy.scoring.score`) of the gathered weights. Each process calls it as often as it
        likes in a step and says which call is its ``last``: in that one's backward pass gradients are summed over processes."""
        self._module.set_requires_gradient_sync(last)
        self._module.set_is_last_backward(last)
        self._module.set_reshard_after_backward(last)
        return Scores(*self._module(function, *tensors, **options))

    @torch.no_grad()
    def hand_over(self, policy: Policy) -> None:
        """The trained weights to the whole copy."""
        for whole, share in zip(policy.model.parameters(), self.model.parameters(), strict=True):
            whole.copy_(gathered(share))


def like(parameter: Any, whole: torch.Tensor) -> torch.Tensor:
    """A copy of a whole tensor where and in the shares in which a parameter of its shape is."""
    if hasattr(parameter, "full_tensor"):
        from torch.distributed.tensor import distribute_tensor

        own = whole.to(parameter.device)
        return distribute_tensor(own, parameter.device_mesh, parameter.placements, src_data_rank=None)
    return whole.to(parameter.device, copy=True)


def gathered(tensor: Any) -> torch.Tensor:
    """The whole of a tensor that may lie in shares (a DTensor); each process asks at the same time."""
    whole: torch.Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole
