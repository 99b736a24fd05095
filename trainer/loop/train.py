"""The RL loop: one function of an explicit state, ignorant of every method.

An iteration either completes or leaves the state as it was at the boundary before: nothing of the state changes until the
last rollout is in, and once an update has begun it is finished before a stop is honoured.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

import torch

from trainer.advantages.groups import group_std
from trainer.contract import events as ev
from trainer.contract.config import RlConfig
from trainer.core.context import Context
from trainer.core.errors import MethodError
from trainer.core.guard import guarded
from trainer.core.slots import AdvantageBase, Objective, PhasePlan, Update
from trainer.core.types import Group, Sample
from trainer.diagnostics import squeezing
from trainer.loop.ahead import next_batch, staleness
from trainer.loop.assemble import Parts, advantage_column, assemble, settled
from trainer.loop.batching import build_batch, mask_truncated
from trainer.loop.figures import rollout_figures
from trainer.loop.schedule import Schedule, drive, is_scheduled
from trainer.loop.update import fill_columns, update
from trainer.rewards.worker import failed


def train(config: RlConfig, ctx: Context, schedule: Schedule) -> None:
    """Runs until the budget ends; see `drive` for stops and errors."""
    config = settled(config, ctx)
    parts = assemble(config)
    drive(
        config,
        ctx,
        schedule,
        lambda: iterate(config, parts, ctx, schedule),
        validate_start=True,
        diagnostics=parts.diagnostics,
    )


def iterate(config: RlConfig, parts: Parts, ctx: Context, schedule: Schedule) -> None:
    """One iteration, from prompts to logged numbers. Raises SamplingStopped with the state untouched."""
    began = time.monotonic()
    counters = ctx.state.counters
    ctx.metrics.clear()
    with guarded("phases", parts.phases):
        plan = parts.phases.plan(ctx)
    if ctx.state.phase.done == 0:
        axes = ctx.state.axes(iteration=ctx.iteration, phase=plan.name)
        ctx.emit(ev.Phase(axes=axes, name=plan.name, title=plan.title))
    _progress(config, ctx, f"{plan.title}: sampling", began)
    if plan.groups is not None:
        groups = ctx.groups = list(plan.groups)
        trained, dropped, _ = _transform(parts, plan, groups, ctx)
    elif config.algorithm.staleness:
        groups = ctx.groups = next_batch(config, ctx, lambda: _collect(config, parts, plan, ctx)[0])
        trained, dropped, _ = _transform(parts, plan, groups, ctx)
        ctx.metrics.update(staleness(config, trained, ctx))
    else:
        groups, trained, dropped = _collect(config, parts, plan, ctx)
    sampled = time.monotonic()
    if plan.groups is None:
        _account(groups, trained, dropped, parts, ctx)
    _progress(config, ctx, f"{plan.title}: updating", began)
    advantages = _learn(config, parts, plan, trained, ctx, schedule)
    ctx.metrics["time/rollout"] = sampled - began
    ctx.metrics["time/update"] = time.monotonic() - sampled
    ctx.state.phase.trained = plan.name
    with guarded("phases", parts.phases):
        parts.phases.advance(ctx)
    counters.iteration += 1
    step_time = ctx.world.first_only(lambda: time.monotonic() - began)
    counters.device_seconds += step_time
    ctx.metrics["step_time"] = step_time
    ctx.metrics["num_tokens"] = float(counters.sampled_tokens)
    ctx.emit.scalars(ctx.state.axes(), ctx.collect())
    if plan.groups is None:
        schedule.keep_rollouts(groups, advantages)
    if plan.groups is None and is_scheduled(config, ctx):
        for figure in rollout_figures(groups, ctx.state.axes()):
            ctx.emit(figure)
    _progress(config, ctx, "", began)


def _account(
    groups: Sequence[Group], trained: Sequence[Group], dropped: Sequence[Group], parts: Parts, ctx: Context
) -> None:
    """What new rollouts are to the metrics, the parts that learn from them, and the counters."""
    ctx.state.counters.discarded_tokens += _sampled(groups) - _sampled(trained)
    _rollout_metrics(groups, ctx)
    with guarded("curriculum", parts.curriculum):
        parts.curriculum.observe(trained, dropped, ctx)
    for part in parts.transforms:
        if hasattr(part, "observe"):
            with guarded("transform", part):
                part.observe(groups, ctx)
    ctx.state.counters.prompts += len(groups)
    ctx.state.counters.rollouts += sum(len(g.trajectories) for g in groups)
    ctx.state.counters.sampled_tokens += _sampled(groups)


def _collect(
    config: RlConfig, parts: Parts, plan: PhasePlan, ctx: Context
) -> tuple[list[Group], list[Group], list[Group]]:
    """(all groups, those to train, those dropped). While a transform misses groups, more prompts are drawn, within the
    allowed rounds and as long as the curriculum has others."""
    wanted = missing = config.algorithm.prompts_per_iteration
    ctx.drawn, ctx.groups = [], []
    trained: list[Group] = []
    dropped: list[Group] = []
    rounds = 0
    while missing and rounds < config.algorithm.max_rounds:
        found = _rollout(parts, missing, ctx)
        if not found:
            break
        rounds += 1
        ctx.groups += found
        trained, dropped, missing = _transform(parts, plan, ctx.groups, ctx)
    if config.algorithm.zero_variance == "refill":
        ctx.metrics["dapo/rounds"] = float(rounds)
        ctx.metrics["dapo/starved"] = missing / wanted
        if missing:
            ctx.emit.log(
                f"iteration {ctx.iteration}: {missing} of {wanted} groups are missing after {rounds} rounds of sampling "
                f"({len(ctx.groups)} prompts), because the others' rollouts were all right or all wrong; what there is is "
                "trained. Raise algorithm.max_rounds or task.problems, or choose problems of another difficulty",
                "warning",
            )
    return ctx.groups, trained, dropped


def _rollout(parts: Parts, count: int, ctx: Context) -> list[Group]:
    with guarded("curriculum", parts.curriculum):
        draws = parts.curriculum.select(count, ctx)
    ctx.drawn += draws
    for part in parts.prompting:
        with guarded("prompting", part):
            draws = [type(d)(part.rewrite(d.prompt, ctx), d.ordinal, d.probability) for d in draws]
    if not draws:
        return []
    with guarded("rollout_plan", parts.plan):
        groups = parts.plan.rollout(draws, ctx)
    return ctx.spread(groups, lambda group: reward_group(parts, group, ctx))


def reward_group(parts: Parts, group: Group, ctx: Context) -> Group:
    """Fills every trajectory's named rewards and its training reward: the weighted sum of what has a verdict. The group."""
    for reward in parts.rewards:
        with guarded("reward", reward):
            scored = reward.score(group, ctx)
            if len(scored) != len(group.trajectories):
                raise MethodError(
                    f"{type(reward).__name__} returned {len(scored)} rewards for {len(group.trajectories)} trajectories"
                )
        for trajectory, named in zip(group.trajectories, scored, strict=True):
            trajectory.rewards.update(named)
    outcome: dict[str, float] = {}
    shaping: dict[str, float] = {}
    for reward in parts.rewards:
        (shaping if getattr(reward, "shaping", False) else outcome).update(reward.weights)
    for t in group.trajectories:
        t.outcome = _weighted(outcome, t.rewards)
        shaped = _weighted(shaping, t.rewards)
        t.reward = t.outcome if t.outcome is None or shaped is None else t.outcome + shaped
    return group


def _weighted(weights: Mapping[str, float], rewards: Mapping[str, float | None]) -> float | None:
    judged = [w * v for k, w in weights.items() if w and (v := rewards.get(k)) is not None]
    return sum(judged) if judged else None


def _transform(
    parts: Parts, plan: PhasePlan, groups: list[Group], ctx: Context
) -> tuple[list[Group], list[Group], int]:
    trained, dropped, missing = groups, [], 0
    for part in (*parts.transforms, *plan.transforms):
        with guarded("transform", part):
            result = part.apply(trained, ctx)
        trained = result.groups
        for group in trained:
            if any(not t.rewards for t in group.trajectories):
                reward_group(parts, group, ctx)
        dropped += result.dropped
        missing = max(missing, result.refill)
    return trained, dropped, missing


def _learn(
    config: RlConfig, parts: Parts, plan: PhasePlan, groups: Sequence[Group], ctx: Context, schedule: Schedule
) -> dict[int, float]:
    """Samples, columns, advantages and the update; returns each trajectory's mean advantage over its trained tokens, by
    identity (NaN without one)."""
    samples: list[Sample] = []
    for group in groups:
        for trajectory in group.trajectories:
            with guarded("samples", parts.samples):
                samples += parts.samples.samples(trajectory, group, ctx)
    batch = build_batch(samples, ctx.policy.pad_id)
    if config.algorithm.mask_truncated:
        mask_truncated(batch)
    objectives = list(plan.objectives) if plan.objectives is not None else parts.objectives
    steps = 1 if plan.single_step else config.algorithm.num_iterations * config.algorithm.minibatches
    readers: list[Objective | Update | AdvantageBase] = [*objectives, *parts.updates]
    if plan.advantages:
        readers.append(parts.base_advantage)
    fill_columns(batch, readers, ctx, config, steps=steps)
    means: dict[int, float] = {}
    if plan.advantages:
        batch.columns["advantage"] = advantage_column(parts, batch, ctx)
        mask = batch.mask_NT
        sums = (batch.columns["advantage"].double() * mask).sum(1).tolist()
        means = _per_trajectory(batch.trajectory_ids, sums, mask.sum(1).tolist())
    for objective in objectives:
        with guarded("objective", objective), torch.no_grad():
            objective.prepare(batch, ctx)
    if not bool(batch.mask_NT.any()):
        ctx.emit.log(f"iteration {ctx.iteration}: nothing to train on in this batch; the update is skipped", "warning")
        return means
    update(batch, plan, objectives, parts.updates, ctx, config)
    return means


def _sampled(groups: Sequence[Group]) -> int:
    return sum(t.sampled_tokens for g in groups for t in g.trajectories)


def _per_trajectory(trajectories: Sequence[int], sums: Sequence[float], counts: Sequence[float]) -> dict[int, float]:
    """Σ sums / Σ counts over each trajectory's samples; NaN where it has no trained token."""
    total: dict[int, list[float]] = {}
    for trajectory, value, count in zip(trajectories, sums, counts, strict=True):
        one = total.setdefault(trajectory, [0.0, 0.0])
        one[0] += value
        one[1] += count
    return {trajectory: value / count if count else math.nan for trajectory, (value, count) in total.items()}


def _rollout_metrics(groups: Sequence[Group], ctx: Context) -> None:
    trajectories = [t for g in groups for t in g.trajectories]
    lengths = [t.sampled_tokens for t in trajectories]
    rewards = [t.reward for t in trajectories if t.reward is not None]
    m = ctx.metrics
    if rewards:
        m["reward"] = sum(rewards) / len(rewards)
        values = torch.tensor([float("nan") if t.reward is None else t.reward for t in trajectories])
        stds = group_std(values, [g.id for g in groups for _ in g.trajectories])
        if len(stds):
            m["reward_std"] = float(stds.mean())
    m["accuracy/train"] = sum(t.correct for t in trajectories) / len(trajectories)
    m["frac_reward_zero_std"] = sum(g.zero_variance for g in groups) / len(groups)
    m["completions/mean_length"] = sum(lengths) / len(lengths)
    m["completions/min_length"] = float(min(lengths))
    m["completions/max_length"] = float(max(lengths))
    m["completions/clipped_ratio"] = sum(t.truncated for t in trajectories) / len(trajectories)
    m["checker/failed"] = sum(failed(t.judged_by) for t in trajectories) / len(trajectories)
    m.update(squeezing.rollout_metrics(groups))
    for judge in sorted({t.judged_by for t in trajectories if t.judged_by}):
        m[f"checker/{judge}"] = sum(t.judged_by == judge for t in trajectories) / len(trajectories)
    for name in sorted({k for t in trajectories for k in t.rewards}):
        scored = [v for t in trajectories if (v := t.rewards.get(name)) is not None]
        if scored:
            m[f"rewards/{name}/mean"] = sum(scored) / len(scored)


def _progress(config: RlConfig, ctx: Context, stage: str, began: float) -> None:
    counters, total = ctx.state.counters, config.budget.iterations
    eta = None
    if counters.iteration:
        eta = counters.device_seconds / counters.iteration * (total - counters.iteration)
    ctx.emit(ev.Progress(iteration=counters.iteration, total_iterations=total, stage=stage, eta_seconds=eta))
