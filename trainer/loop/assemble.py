"""Which parts run: the base row's, then each method's in declared order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from trainer.advantages import groups
from trainer.contract.config import AlgorithmSection, RlConfig
from trainer.core.context import Context
from trainer.core.errors import ConfigError
from trainer.core.guard import guarded
from trainer.core.registry import SINGLE_SLOTS, load_part
from trainer.core.slots import (
    Advantage,
    Curriculum,
    Diagnostic,
    Objective,
    Phases,
    Prompting,
    Reward,
    RolloutPlan,
    SampleMaker,
    Transform,
    Update,
)
from trainer.core.types import Batch
from trainer.curricula.uniform import Uniform
from trainer.loop.batching import WholePath
from trainer.loop.phases import SinglePhase
from trainer.methods import all_methods, params_of
from trainer.objectives.policy_gradient import PolicyGradient
from trainer.rewards.exact import TaskReward
from trainer.rollout.plan import SinglePass

_LOOP_SLOTS = frozenset(
    {
        "curriculum",
        "prompting",
        "rollout_plan",
        "reward",
        "transform",
        "samples",
        "advantage",
        "objective",
        "update",
        "phases",
        "diagnostic",
    }
)


class BaseAdvantage:
    """The base row's estimator: the first (N, 1) column that shapers then change."""

    def __init__(self, algorithm: AlgorithmSection) -> None:
        self.a = algorithm

    def estimate(self, batch: Batch) -> torch.Tensor:
        """Advantages (N,) of the batch by the algorithm's name."""
        if self.a.advantage == "group_zscore":
            return groups.group_zscore(
                batch.reward_N, batch.group_ids, eps=self.a.adv_eps, unbiased=self.a.std_unbiased
            )
        if self.a.advantage == "group_mean":
            return groups.group_mean(batch.reward_N, batch.group_ids)
        return groups.leave_one_out(batch.reward_N, batch.group_ids)


@dataclass
class Parts:
    """Everything an iteration calls, by slot. Method objectives are added to the base one."""

    curriculum: Curriculum
    plan: RolloutPlan
    base_advantage: BaseAdvantage
    phases: Phases
    samples: SampleMaker = field(default_factory=WholePath)
    prompting: list[Prompting] = field(default_factory=list)
    rewards: list[Reward] = field(default_factory=lambda: [TaskReward()])
    transforms: list[Transform] = field(default_factory=list)
    advantages: list[Advantage] = field(default_factory=list)
    objectives: list[Objective] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)


_ATTRIBUTE = {
    "curriculum": "curriculum",
    "rollout_plan": "plan",
    "phases": "phases",
    "samples": "samples",
    "prompting": "prompting",
    "reward": "rewards",
    "transform": "transforms",
    "advantage": "advantages",
    "objective": "objectives",
    "update": "updates",
    "diagnostic": "diagnostics",
}
_REPLACED = SINGLE_SLOTS | {"rollout_plan", "samples"}


def assemble(config: RlConfig) -> Parts:
    """Builds the parts of a resolved configuration. Single slots are replaced, list slots grow in declared order."""
    parts = Parts(
        curriculum=Uniform(),
        plan=SinglePass(config),
        base_advantage=BaseAdvantage(config.algorithm),
        phases=SinglePhase(),
        objectives=[PolicyGradient(config.algorithm)],
    )
    filled: dict[str, str] = {}
    for choice in config.methods:
        spec = all_methods()[choice.slug]
        for slot, names in spec.parts.items():
            if slot not in _LOOP_SLOTS:
                raise ConfigError(f"method {spec.slug}: this release has no loop for slot {slot!r}")
            for name in names:
                part: Any = load_part(name)(params_of(choice), config)
                if slot in _REPLACED:
                    if slot in filled:
                        raise ConfigError(f"{filled[slot]} and {spec.slug} both fill the single slot {slot!r}")
                    filled[slot] = spec.slug
                    setattr(parts, _ATTRIBUTE[slot], part)
                else:
                    getattr(parts, _ATTRIBUTE[slot]).append(part)
    return parts


def advantage_column(parts: Parts, batch: Batch, ctx: Context) -> torch.Tensor:
    """Advantages (N, T) of the batch: the base estimate, then every shaper; constant along a sequence unless shaped."""
    with guarded("advantage", parts.base_advantage):
        value = parts.base_advantage.estimate(batch)
    for shaper in parts.advantages:
        with guarded("advantage", shaper):
            value = shaper.shape(value, batch, ctx)
    if value.ndim == 1:
        value = value[:, None]
    return value.expand(batch.ids_NT.shape).contiguous()
