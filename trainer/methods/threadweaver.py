"""ThreadWeaver: adaptive fork-join reasoning with P-GRPO (arXiv 2512.07843).

The rule: the policy writes outlines of independent sub-tasks, every outline's thread is decoded by a request of its own, and
decoding goes on behind all of them. The reward of a right answer is raised by ρ · min(η, η_max), where η is the share of
tokens off the critical path, and advantages are centred in the group without a standard deviation, which would blow that
small bonus up wherever all rollouts are right.

The released code's η, reward, parser and join are followed. Deviations: the likelihood iterations at the start are the
paper's self-training step done on-policy, inside the run; η counts for nothing where a policy writes thread tags itself
[ours]; the speed-up compares forked and unforked rollouts of one prompt [ours]; wall-clock latency is not measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from trainer.contract.charts import Chart
from trainer.contract.config import setting
from trainer.core.registry import MethodParams, MethodSpec, Paper

if TYPE_CHECKING:
    import torch

    from trainer.contract.config import RlConfig
    from trainer.core.context import Context
    from trainer.core.slots import PhasePlan
    from trainer.core.types import Batch, Group, Sample, Trajectory


class ThreadWeaverParams(MethodParams):
    """Defaults are the released run's; the refinement's length and the packing are ours."""

    tags: Literal["xml", "letters"] = setting(
        "xml",
        "Tags",
        "<Parallel> and so on, each one special token of the policy; or single letters, for a character tokenizer.",
    )
    fork: bool = setting(True, "Fork", "Off decodes the tags as ordinary text, one token after the other: the control.")
    rho: float = setting(0.5, "Bonus ρ", "Weight of the acceleration in the reward of a right answer.", ge=0, le=10)
    eta_max: float = setting(
        0.2, "Largest η", "Acceleration beyond this is not paid: with ρ 0.5 the bonus is at most 0.1.", gt=0, lt=1
    )
    advantage: Literal["centred", "base"] = setting(
        "centred",
        "Advantage",
        "'centred' is P-GRPO: reward minus the group's mean. 'base' leaves the base algorithm's; divided by the standard "
        "deviation the bonus crowds out accuracy.",
    )
    refine: int = setting(
        0,
        "Self-training first",
        "So many iterations raise the likelihood of right, well-formed rollouts before RL begins.",
        unit="iterations",
        ge=0,
        le=100_000,
    )
    packing: Literal["units", "tree"] = setting(
        "units",
        "Packing",
        "Every piece after its context, or all pieces of a rollout in one sequence with ancestor-only attention. The loss is "
        "the same; which is faster depends on the model.",
        advanced=True,
    )
    max_phases: int = setting(32, "Phases", "Sequential and parallel pieces at most.", ge=1, le=1000, advanced=True)


class ThreadWeaverPlan:
    """Fork and join, or plain decoding."""

    def __init__(self, params: ThreadWeaverParams, config: RlConfig) -> None:
        from trainer.rollout.fork_join import ForkJoin
        from trainer.rollout.plan import SinglePass

        self.plan = ForkJoin(params.tags, params.max_phases, config) if params.fork else SinglePass(config)

    def rollout(self, draws: Any, ctx: Context) -> list[Group]:
        """One group a draw."""
        return self.plan.rollout(draws, ctx)


class ThreadWeaverSamples:
    """The pieces, apart or in a tree."""

    def __init__(self, params: ThreadWeaverParams, config: RlConfig) -> None:
        from trainer.samples.forked import Tree, Units

        self.maker = Tree() if params.packing == "tree" else Units()

    def samples(self, trajectory: Trajectory, group: Group, ctx: Context) -> list[Sample]:
        """All of the trajectory's samples."""
        return self.maker.samples(trajectory, group, ctx)


class ThreadWeaverReward:
    """The capped bonus, and the method's figures."""

    def __init__(self, params: ThreadWeaverParams, config: RlConfig) -> None:
        from trainer.rewards.acceleration import Acceleration

        self.inner = Acceleration(params.tags, params.rho, params.eta_max)
        self.weights, self.shaping = self.inner.weights, self.inner.shaping

    def score(self, group: Group, ctx: Context) -> list[dict[str, float | None]]:
        """One dict a trajectory."""
        return self.inner.score(group, ctx)


class ThreadWeaverAdvantage:
    """Reward minus the group's mean, one number a trajectory, whatever the base algorithm estimates."""

    def __init__(self, params: ThreadWeaverParams, config: RlConfig) -> None:
        self.centred = params.advantage == "centred"
        self.algorithm = config.algorithm.model_copy(update={"advantage": "group_mean"})

    def shape(self, advantage: torch.Tensor, batch: Batch, ctx: Context) -> torch.Tensor:
        """(N,), or the given advantage."""
        from trainer.advantages.estimators import Outcome, estimate

        if not self.centred:
            return advantage
        outcome = Outcome(batch.reward_N, batch.group_ids, batch.mask_NT, batch.mask_NT * 0)
        return estimate(outcome, batch.trajectory_ids, self.algorithm).advantage


class ThreadWeaverPhases:
    """Self-training on accepted rollouts first, then RL."""

    def __init__(self, params: ThreadWeaverParams, config: RlConfig) -> None:
        self.p = params

    def plan(self, ctx: Context) -> PhasePlan:
        """The likelihood of what was accepted, in one step; or the run's own objective."""
        from trainer.core.slots import PhasePlan
        from trainer.objectives.likelihood import Likelihood
        from trainer.rewards.acceleration import well_formed
        from trainer.rollout.fork_join import Tags, answer_ids
        from trainer.transforms.accepted import KeepAccepted

        if ctx.iteration > self.p.refine:
            return PhasePlan("rl", "RL")
        tags = Tags.of(self.p.tags, ctx.policy).ids
        filters = (KeepAccepted(lambda t: well_formed(t, answer_ids(t), tags)),)
        return PhasePlan(
            "refine",
            "Self-training",
            objectives=(Likelihood(),),
            transforms=filters,
            advantages=False,
            single_step=True,
        )

    def advance(self, ctx: Context) -> None:
        """Counts the iteration; the phase changes after the last one of self-training."""
        ctx.state.phase.done = 0 if ctx.iteration == self.p.refine else ctx.state.phase.done + 1


SPEC = MethodSpec(
    slug="threadweaver",
    title="ThreadWeaver",
    summary="Decodes independent sub-tasks side by side and pays right answers a little for a short critical path.",
    paper=Paper(
        "ThreadWeaver: Adaptive Threading for Efficient Parallel Reasoning in Language Models",
        "2512.07843",
        "L. Lian, S. Wang, F. Juefei-Xu, T.-J. Fu, X. Li, A. Yala, T. Darrell, A. Suhr, Y. Tian, X. V. Lin",
    ),
    params=ThreadWeaverParams,
    parts={
        "rollout_plan": ("trainer.methods.threadweaver:ThreadWeaverPlan",),
        "samples": ("trainer.methods.threadweaver:ThreadWeaverSamples",),
        "reward": ("trainer.methods.threadweaver:ThreadWeaverReward",),
        "advantage": ("trainer.methods.threadweaver:ThreadWeaverAdvantage",),
        "phases": ("trainer.methods.threadweaver:ThreadWeaverPhases",),
    },
    bases=("grpo", "dr-grpo", "dapo", "rloo", "cispo"),
    needs=frozenset({"prefix"}),
    problems=("slow inference", "long chains of thought", "latency", "parallel thinking", "overthinking"),
    signals=(
        Chart(
            "tw_path",
            "Critical path",
            ("tw/critical_path", "tw/total_tokens"),
            "Latency in tokens against all tokens: the distance between the lines is what runs side by side.",
            "tokens",
            section="method",
        ),
        Chart(
            "tw_eta",
            "Acceleration and form",
            ("tw/eta", "tw/with_parallel_frac", "tw/format_ok", "accuracy/train"),
            "η rising while accuracy falls means that the bonus is being gamed.",
            "share",
            True,
            "method",
        ),
        Chart(
            "tw_forks",
            "Forking by kind of problem",
            ("tw/fork_rate/independent", "tw/fork_rate/dependent"),
            "Adaptive forking: up where the parts are independent, down where each needs the one before.",
            "share",
            True,
            "method",
        ),
        Chart(
            "tw_shape",
            "Blocks, threads and pieces",
            ("tw/blocks", "tw/threads_per_block", "tw/units_per_traj"),
            "How rollouts are cut up.",
            section="method",
        ),
        Chart(
            "tw_speedup",
            "Speed-up",
            ("tw/speedup",),
            "Tokens of unforked rollouts over the critical path of forked ones, on prompts that have both.",
            "×",
            section="method",
        ),
        Chart(
            "tw_bonus",
            "Bonus",
            ("tw/accel_reward",),
            "Mean over rollouts, as it stands in the reward.",
            section="method",
        ),
    ),
)
