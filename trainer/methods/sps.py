"""SPS: steering probability squeezing (arXiv 2604.16995), over any base algorithm.

The rule: after every ``k_rl`` iterations of ordinary RL, ``k_irl`` iterations of inverse RL take the policy's own distinct
rollouts as demonstrations and minimise KL(q‖p) over each prompt's group, where p is the group-normalised distribution that
the policy induces on them and q prefers rewarded ones without preferring one of them. Over-represented solutions go down,
rare correct ones up.

Deviations and what is derived: only the abstract and reading notes were available. The forward KL is the paper's; the
forms of p and q, the sign (+KL is minimised), the schedule, the gate and the score scale are ours and switchable. The
explicit reward-model form is left out. The loss is a mean over the prompts that could be used, where the card's simulation
divides by all of them.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from trainer.contract.charts import Chart
from trainer.contract.config import setting
from trainer.core.registry import MethodParams, MethodSpec, Paper

if TYPE_CHECKING:
    from trainer.contract.config import RlConfig
    from trainer.core.context import Context
    from trainer.core.slots import PhasePlan


class SpsParams(MethodParams):
    """The paper's own values are unknown; defaults are ours."""

    k_rl: int = setting(
        5,
        "RL iterations per cycle",
        "Keep it below the number of iterations in which groups collapse to "
        "one solution, or nothing is left to spread.",
        ge=1,
        le=1000,
    )
    k_irl: int = setting(1, "Inverse-RL iterations per cycle", "Each takes one optimiser step.", ge=1, le=100)
    fresh: bool = setting(
        True,
        "Fresh rollouts",
        "Off: the phase takes the rollouts of the RL iterations before it, and samples nothing.",
        advanced=True,
    )
    target: Literal["reward_boltzmann", "uniform_distinct", "correct_uniform"] = setting(
        "reward_boltzmann", "Target q", "exp(r/α) over the demonstrations, equal on all, or equal on the correct ones."
    )
    alpha: float = setting(
        0.5,
        "α of the target",
        "Small: nearly only correct ones; large: nearly uniform. Steers pass@1 against pass@k.",
        ge=0.01,
        le=100,
    )
    prompts: Literal["solved", "all"] = setting(
        "solved", "Prompts used", "'solved' skips prompts without a correct demonstration: there q would reward errors."
    )
    score: Literal["sum", "length_norm"] = setting(
        "sum", "Score", "Sequence log-prob, or normalised by length (for natural-language answers)."
    )
    score_scale: bool = setting(
        True,
        "Scale scores",
        "Divide by max(1, std/2) within the group, so that long answers don't put all weight on one sequence.",
        advanced=True,
    )
    irl_lr_scale: float = setting(1.0, "Learning-rate scale", "Of the inverse-RL steps.", gt=0, le=10, advanced=True)
    irl_kl_coef: float = setting(
        0.02, "KL in the phase", "k3 to the policy at the phase's start.", ge=0, le=10, advanced=True
    )
    stop_kl: float = setting(
        0.05, "Stop at KL", "Ends the phase when the mean KL exceeds this.", unit="nats/token", gt=0, advanced=True
    )
    stop_drop: float = setting(
        0.05,
        "Stop at accuracy drop",
        "Ends the phase when accuracy on its prompts falls this much.",
        gt=0,
        le=1,
        advanced=True,
    )
    trigger: Literal["fixed", "adaptive"] = setting(
        "fixed",
        "Trigger",
        "'adaptive' starts the phase only when solutions are collapsing (effective number below .7 of "
        "its start, or fewer than G/4 distinct demonstrations).",
        advanced=True,
    )


class SpsPhases:
    """The outer machine: ``k_rl`` iterations of RL, then, if the trigger says so, up to ``k_irl`` of inverse RL."""

    def __init__(self, params: SpsParams, config: RlConfig) -> None:
        self.p = params
        self.group_size = config.algorithm.num_generations
        self.prompts = config.algorithm.prompts_per_iteration

    def plan(self, ctx: Context) -> PhasePlan:
        """The base objective, or inverse RL on distinct rollouts with its own learning rate and a single pass."""
        from trainer.core.slots import PhasePlan
        from trainer.objectives.irl import InverseRL
        from trainer.rollout.packed import unpacked
        from trainer.transforms.deduplicate import KeepDistinct

        if ctx.state.phase.name != "irl":
            return PhasePlan("rl", "RL")
        p, groups = self.p, None
        if not p.fresh:
            buffer = ctx.state.memory_of("sps")["buffer"]
            chosen = ctx.rng("sps buffer").sample(buffer, min(self.prompts, len(buffer)))
            groups = tuple(unpacked(chosen))
        objective = InverseRL(
            target=p.target, alpha=p.alpha, prompts=p.prompts, score=p.score, scale=p.score_scale, kl_coef=p.irl_kl_coef
        )
        return PhasePlan(
            "irl",
            "Inverse RL",
            objectives=(objective,),
            transforms=(KeepDistinct(),),
            advantages=False,
            lr_scale=p.irl_lr_scale,
            single_step=True,
            groups=groups,
        )

    def advance(self, ctx: Context) -> None:
        """Counts the completed iteration and moves on where its phase is over."""
        from trainer.rollout.packed import packed

        phase, memory = ctx.state.phase, ctx.state.memory_of("sps")
        phase.done += 1
        ctx.metrics["sps/phase"] = float(phase.name == "irl")
        if phase.name == "irl":
            if phase.done >= self.p.k_irl or self._must_stop(ctx, memory["accuracy"]):
                ctx.state.policies.pop("phase_start", None)
                memory.pop("buffer", None)
                phase.name, phase.done, phase.cycle = "rl", 0, phase.cycle + 1
            return
        memory["accuracy"] = ctx.metrics["accuracy/train"]
        if not self.p.fresh:
            kept = memory.get("buffer", []) if phase.done > 1 else []
            memory["buffer"] = kept + packed(ctx.groups)
        if phase.done >= self.p.k_rl:
            phase.done = 0
            if self._triggered(ctx):
                phase.name = "irl"
                if self.p.k_irl > 1:  # within the first iteration the KL to the start is exactly 0
                    policy = ctx.state.policies["policy"].policy
                    frozen = replace(policy, model=copy.deepcopy(policy.model))
                    ctx.state.policies["phase_start"] = replace(
                        ctx.state.policies["policy"], policy=frozen, optimizer=None
                    )

    def _must_stop(self, ctx: Context, accuracy_before: float) -> bool:
        # Old rollouts say nothing of the policy's accuracy now.
        drop = accuracy_before - ctx.metrics["accuracy/train"] if self.p.fresh else 0.0
        return ctx.tallied("sps/phase_kl") > self.p.stop_kl or drop > self.p.stop_drop

    def _triggered(self, ctx: Context) -> bool:
        from trainer.transforms.deduplicate import distinct

        if self.p.trigger == "fixed":
            return True
        mean_distinct = sum(len(distinct(g)) for g in ctx.groups) / len(ctx.groups)
        measured = ctx.state.memory_of("evaluation")
        collapsing = measured.get("neff", 0.0) < 0.7 * measured.get("neff_start", 0.0)
        return mean_distinct < self.group_size / 4 or collapsing


SPEC = MethodSpec(
    slug="sps",
    title="SPS",
    summary="Alternates RL with inverse RL on the policy's own distinct rollouts, so that probability is not squeezed onto "
    "few solutions.",
    paper=Paper(
        "SPS: Steering Probability Squeezing for Better Exploration in Reinforcement Learning for Large Language Models",
        "2604.16995",
        "Yifu Huo, Chenglong Wang, Ziming Zhu, Shunjie Xing, Peinan Feng, Tongran Liu, Qiaozhi He, Tianhua Zhou, "
        "Xiaojia Chang, Jingbo Zhu, Zhengtao Yu, Tong Xiao",
    ),
    params=SpsParams,
    parts={"phases": ("trainer.methods.sps:SpsPhases",)},
    needs=frozenset({"canonical"}),
    problems=("pass@k falls", "probability squeezing", "entropy collapse", "forgets rare solutions", "exploration"),
    signals=(
        Chart(
            "sps_demos",
            "Demonstrations per prompt",
            ("sps/demo_distinct", "sps/demo_correct", "sps/p_neff"),
            "When distinct demonstrations fall towards 1, the phase has nothing left to spread.",
            section="method",
        ),
        Chart(
            "sps_loss", "Inverse-RL loss", ("sps/irl_kl",), "KL(q‖p) over the demonstrations.", "nats", section="method"
        ),
        Chart(
            "sps_gate",
            "Skipped prompts and wrong mass",
            ("sps/skipped_prompts", "sps/target_wrong_mass"),
            "Prompts the phase could not use, and how much target mass lies on wrong answers.",
            "share",
            True,
            "method",
        ),
        Chart(
            "sps_norm",
            "Inverse-RL step",
            ("sps/irl_grad_norm", "sps/phase_kl"),
            "Gradient norm of the step, KL since the phase began.",
            section="method",
        ),
    ),
    derived=True,
)
