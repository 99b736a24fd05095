"""Where a policy computes and in which precision.

Weights, gradients and AdamW's moments are fp32 everywhere: in bfloat16 most updates of a small learning rate would round to
nothing. What is chosen is the type of the matrix products (autocast), which decides most of a GPU's speed.

A batch and everything of the loop lives on the CPU; `trainer.loop.forward` moves ids to the policy's device and scores back.
"""

from __future__ import annotations

import os
from dataclasses import replace

import torch

from trainer.contract.config import HardwareSection
from trainer.core.errors import ConfigError
from trainer.policy.load import Policy


def device_of(section: HardwareSection) -> torch.device:
    """The device that a configuration asks for, on this host; of several GPUs the one that is this process's own
    (``LOCAL_RANK``). Raises ConfigError where it is not there."""
    found = torch.cuda.is_available()
    if section.device == "cuda" and not found:
        raise ConfigError("hardware.device: found cuda, but torch sees no GPU here; set it to auto or cpu")
    if section.device == "cpu" or not found:
        return torch.device("cpu")
    own, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if own >= count:
        raise ConfigError(
            f"hardware.processes: process {own + 1} of this host has no GPU of its own, torch sees {count}; lower it to "
            f"{count}, or set hardware.device to cpu"
        )
    return torch.device("cuda", own)


def dtype_of(section: HardwareSection, device: torch.device) -> torch.dtype:
    """The type of matrix products. Raises ConfigError where the device has not got it."""
    has_bfloat16 = device.type == "cpu" or torch.cuda.is_bf16_supported(including_emulation=False)
    if section.dtype == "bfloat16" and not has_bfloat16:
        raise ConfigError("hardware.dtype: found bfloat16, which this GPU has not got; set it to float32")
    if section.dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" and has_bfloat16 else torch.float32
    return torch.bfloat16 if section.dtype == "bfloat16" else torch.float32


def placed(policy: Policy, section: HardwareSection) -> Policy:
    """The policy on its device; the model is moved in place. Optimisers are made afterwards."""
    device = device_of(section)
    model: torch.nn.Module = policy.model
    model.to(device)
    return replace(policy, dtype=dtype_of(section, device))


def make_deterministic(device: torch.device) -> None:
    """One thread and fixed orders of sums, so that the same run gives the same bits on a CPU. On a GPU torch has no such
    form of some of what is used (a cumulative sum), and no bits are promised."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(device.type == "cpu")
    # Nothing here reads memory it has not written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
