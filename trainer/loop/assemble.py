"""Which parts run: the base row's, then each method's in declared order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from trainer.advantages.estimators import Outcome, estimate
from trainer.contract.config import AlgorithmSection, RlConfig
from trainer.core.context import Context
from trainer.core.errors import ConfigError
from trainer.core.guard import guarded
from trainer.core.registry import SINGLE_SLOTS, load_part
from trainer.core.slots import (
    Advantage,
    AdvantageBase,
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
from trainer.objectives.entropy import EntropyBonus
from trainer.objectives.kl_term import KlToBase
from trainer.objectives.policy_gradient import PolicyGradient
from trainer.objectives.value_term import ValueTerm
from trainer.policy.heads import VALUE
from trainer.rewards.exact import TaskReward
from trainer.rewards.overlong import SoftOverlong
from trainer.rollout.plan import SinglePass
from trainer.transforms.dynamic_sampling import DynamicSampling

_LOOP_SLOTS = frozenset(
    {
        "curriculum",
        "prompting",
        "rollout_plan",
        "reward",
        "transform",
        "samples",
        "advantage_base",
        "advantage",
        "policy_objective",
        "objective",
        "update",
        "phases",
        "diagnostic",
    }
)


class BaseAdvantage:
    """The base row's estimator: the first advantages, which shapers then change."""

    def __init__(self, algorithm: AlgorithmSection) -> None:
        self.a = algorithm

    def estimate(self, batch: Batch, ctx: Context) -> torch.Tensor:
        """Advantages (N,) or (N, T) by the algorithm's name; fills the column ``returns`` where there are values."""
        columns = batch.columns
        penalty = columns.get("kl_penalty", torch.zeros_like(batch.mask_NT))
        memory = ctx.state.memory_of("advantage")
        values = columns.get(f"old_{VALUE}")
        outcome = Outcome(batch.reward_N, batch.group_ids, batch.mask_NT, penalty, values, memory)
        found = estimate(outcome, batch.trajectory_ids, self.a)
        if found.returns_NT is not None:
            columns["returns"] = found.returns_NT
        return found.advantage


@dataclass
class Parts:
    """Everything an iteration calls, by slot. Method objectives are added to the base one."""

    curriculum: Curriculum
    plan: RolloutPlan
    base_advantage: AdvantageBase
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
    "advantage_base": "base_advantage",
    "prompting": "prompting",
    "reward": "rewards",
    "transform": "transforms",
    "advantage": "advantages",
    "objective": "objectives",
    "update": "updates",
    "diagnostic": "diagnostics",
}


def base_objectives(a: AlgorithmSection) -> list[Objective]:
    """The terms of the base row: the policy's, and those that the section asks for."""
    out: list[Objective] = [PolicyGradient(a)]
    if a.needs_reference:
        out.append(KlToBase(a))
    if a.entropy_coef or a.entropy_target is not None:
        out.append(EntropyBonus(a))
    if a.advantage == "gae":
        out.append(ValueTerm(a))
    return out


def settled(config: RlConfig, ctx: Context) -> RlConfig:
    """The configuration with what was left to the engine decided, which a line in the log tells where it matters."""
    engine: Literal["torch", "vllm"] = "vllm" if "vllm" in ctx.sampler.capabilities else "torch"
    a = config.algorithm
    correction = a.correction(engine)
    if a.mismatch == "auto" and correction != "off":
        why = f"batches are up to {a.staleness} updates old" if a.staleness else "vLLM draws the rollouts"
        ctx.emit.log(f"sampler correction: {correction}, because {why} (algorithm.mismatch is auto)")
    return config.model_copy(update={"algorithm": a.model_copy(update={"mismatch": correction})})


def assemble(config: RlConfig) -> Parts:
    """Builds the parts of a resolved configuration. Single slots are replaced, list slots grow in declared order."""
    a = config.algorithm
    parts = Parts(
        curriculum=Uniform(),
        plan=SinglePass(config),
        base_advantage=BaseAdvantage(a),
        phases=SinglePhase(),
        objectives=base_objectives(a),
    )
    if a.overlong_buffer:
        parts.rewards.append(SoftOverlong(config))
    filled: dict[str, str] = {}
    for choice in config.methods:
        spec = all_methods()[choice.slug]
        for slot, names in spec.parts.items():
            if slot not in _LOOP_SLOTS:
                raise ConfigError(f"method {spec.slug}: this release has no loop for slot {slot!r}")
            for name in names:
                part: Any = load_part(name)(params_of(choice), config)
                if slot in SINGLE_SLOTS:
                    if slot in filled:
                        raise ConfigError(f"{filled[slot]} and {spec.slug} both fill the single slot {slot!r}")
                    filled[slot] = spec.slug
                    if slot == "policy_objective":
                        parts.objectives[0] = part  # where the base row's policy term stands
                    else:
                        setattr(parts, _ATTRIBUTE[slot], part)
                else:
                    getattr(parts, _ATTRIBUTE[slot]).append(part)
    if a.zero_variance != "keep":
        # Last, so that a group that a method has rescued isn't dropped.
        parts.transforms.append(DynamicSampling(config))
    return parts


def advantage_column(parts: Parts, batch: Batch, ctx: Context) -> torch.Tensor:
    """Advantages (N, T) of the batch: the base estimate, then every shaper; constant along a sequence unless shaped."""
    for objective in parts.objectives:
        if isinstance(objective, KlToBase):
            objective.penalise(batch, ctx)
    with guarded("advantage", parts.base_advantage):
        value = parts.base_advantage.estimate(batch, ctx)
    for shaper in parts.advantages:
        with guarded("advantage", shaper):
            value = shaper.shape(value, batch, ctx)
    if value.ndim == 1:
        value = value[:, None]
    return value.expand(batch.ids_NT.shape).contiguous()
