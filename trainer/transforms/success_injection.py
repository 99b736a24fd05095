"""Synthetic success injection: where a problem seems out of reach, a teacher's right answer takes the place of the worst
rollout. See `trainer.methods.hapo`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trainer.advantages.groups import COLLAPSED
from trainer.core.context import Context
from trainer.core.slots import TransformResult
from trainer.core.types import Group, Trajectory
from trainer.curricula.posterior import Beta
from trainer.data.teachers import Teachers

if TYPE_CHECKING:
    from trainer.contract.config import RlConfig
    from trainer.methods.hapo import HapoParams


def linear_threshold(start: float, iteration: int, horizon: float) -> float:
    """τ_t = τ₀·max(0, 1 − t/T): falls to 0 within ``horizon`` iterations; ``iteration`` counts completed ones."""
    return start * max(0.0, 1 - iteration / horizon) if horizon > 0 else 0.0


def adaptive_threshold(start: float, success: float, aim: float) -> float:
    """τ₀·(1 − success/aim), not below 0: falls as the mean success rate nears ``aim``."""
    return max(0.0, start * (1 - success / aim))


def worst(trajectories: Sequence[Trajectory]) -> int | None:
    """Index of the lowest reward among those with a verdict; ties go to the lowest mean log-prob, then to the lowest index.
    None where all earned the same full reward, or none has a verdict."""
    judged = [(t.reward, _mean_logprob(t), i) for i, t in enumerate(trajectories) if t.reward is not None]
    if not judged or all(trajectories[i].correct for _, _, i in judged):
        return None
    return min(judged)[2]


def _mean_logprob(trajectory: Trajectory) -> float:
    found = [lp for span in trajectory.spans() if span.sampled for lp in span.logprobs or ()]
    return sum(found) / len(found) if found else 0.0


def _same(rewards: Sequence[float | None]) -> bool:
    known = [r for r in rewards if r is not None]
    return not known or max(known) - min(known) < COLLAPSED


class SuccessInjection:
    """Keeps a posterior of each problem's success probability from the run's own rollouts, in the memory ``hapo``."""

    def __init__(self, params: HapoParams, config: RlConfig) -> None:
        self.p = params
        self.horizon = params.horizon * config.budget.iterations
        self.teachers = Teachers(params.teacher_file)

    def threshold(self, ctx: Context) -> float:
        """τ of this iteration."""
        linear = linear_threshold(self.p.tau, ctx.iteration - 1, self.horizon)
        lowest = ctx.state.memory_of("hapo").get("tau", self.p.tau)
        return linear if self.p.annealing == "linear" else min(linear, float(lowest))

    def posterior(self, group: Group, ctx: Context) -> Beta:
        """With this group's verdicts."""
        judged = [t for t in group.trajectories if t.outcome is not None]
        right = sum(t.correct for t in judged)
        known = Beta(*ctx.state.memory_of("hapo").get("posteriors", {}).get(group.prompt.uid, (1.0, 1.0)))
        return known.after(right, len(judged) - right, discount=self.p.discount)

    def open(self, group: Group, posterior: Beta, tau: float, ctx: Context) -> bool:
        """Whether the problem gets help: it is likely that its success probability is below τ."""
        if self.p.gate == "always":
            return True
        if self.p.gate == "thompson":
            return ctx.rng("hapo gate", group.id).betavariate(posterior.a, posterior.b) < tau
        return posterior.below(tau) >= self.p.confidence

    def apply(self, groups: list[Group], ctx: Context) -> TransformResult:
        """At most one replacement in a group; the given groups stay as they are."""
        tau, out = self.threshold(ctx), []
        opened = injected = missing = 0
        means = []
        for group in groups:
            posterior = self.posterior(group, ctx)
            means.append(posterior.mean)
            place = worst(group.trajectories) if self.open(group, posterior, tau, ctx) else None
            opened += place is not None
            lesson = None
            if place is not None:
                lesson = self.teachers.trajectory(group.prompt, ctx, ctx.rng("hapo teacher", group.id))
                missing += lesson is None
            if place is None or lesson is None:
                out.append(group)
                continue
            injected += 1
            kept = list(group.trajectories)
            kept[place] = replace(lesson, index=kept[place].index)
            out.append(replace(group, trajectories=kept))
        count = max(len(groups), 1)
        collapsed = sum(_same([1.0 if not t.rewards else t.reward for t in g.trajectories]) for g in out)
        ctx.metrics |= {
            "hapo/tau": tau,
            "hapo/gate_open_rate": opened / count,
            "hapo/injected": injected / count,
            "hapo/no_teacher": missing / count,
            "hapo/collapsed_after": collapsed / count,
            "hapo/posterior_mean": sum(means) / count,
        }
        return TransformResult(out)

    def observe(self, groups: Sequence[Group], ctx: Context) -> None:
        """Moves the posteriors on by what was rolled out, and the adaptive threshold, which never rises."""
        memory = ctx.state.memory_of("hapo")
        posteriors = memory.setdefault("posteriors", {})
        for group in groups:
            posterior = self.posterior(group, ctx)
            posteriors[group.prompt.uid] = [posterior.a, posterior.b]
        trajectories = [t for g in groups for t in g.trajectories if t.outcome is not None]
        if trajectories:
            now = sum(t.correct for t in trajectories) / len(trajectories)
            memory["success"] = 0.9 * memory["success"] + 0.1 * now if "success" in memory else now
            lowest = adaptive_threshold(self.p.tau, memory["success"], self.p.aim)
            memory["tau"] = min(memory.get("tau", self.p.tau), lowest)
