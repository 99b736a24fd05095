"""The RL loop: one function of an explicit state, ignorant of every method.

An iteration either completes or leaves the state as it was at the boundary before: nothing of the state changes until the
last rollout is in, and once an update has begun it is finished before a stop is honoured.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from trainer.advantages.groups import group_std
from trainer.contract import events as ev
from trainer.contract.config import RlConfig
from trainer.core.context import Context
from trainer.core.errors import MethodError
from trainer.core.guard import guarded
from trainer.core.slots import PhasePlan
from trainer.core.types import Group, Sample
from trainer.loop.assemble import Parts, advantage_column, assemble
from trainer.loop.batching import build_batch
from trainer.loop.schedule import Schedule, drive
from trainer.loop.update import fill_columns, update


def train(config: RlConfig, ctx: Context, schedule: Schedule) -> None:
    """Runs until the budget ends; see `drive` for stops and errors."""
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
        ctx.emit(ev.Phase(axes=ctx.state.axes(iteration=ctx.iteration), name=plan.name, title=plan.title))
    _progress(config, ctx, f"{plan.title}: sampling", began)
    groups = _rollout(config, parts, ctx)
    sampled = time.monotonic()
    trained, dropped = _transform(parts, plan, groups, ctx)
    _rollout_metrics(groups, ctx)
    with guarded("curriculum", parts.curriculum):
        parts.curriculum.observe(trained, dropped, ctx)
    counters.prompts += len(groups)
    counters.rollouts += sum(len(g.trajectories) for g in groups)
    counters.sampled_tokens += sum(t.sampled_tokens for g in groups for t in g.trajectories)
    _progress(config, ctx, f"{plan.title}: updating", began)
    advantages = _learn(config, parts, plan, trained, ctx, schedule)
    ctx.metrics["time/rollout"] = sampled - began
    ctx.metrics["time/update"] = time.monotonic() - sampled
    phase_name = ctx.state.phase.name
    with guarded("phases", parts.phases):
        parts.phases.advance(ctx)
    counters.iteration += 1
    step_time = time.monotonic() - began
    counters.device_seconds += step_time
    ctx.metrics["step_time"] = step_time
    ctx.metrics["num_tokens"] = float(counters.sampled_tokens)
    ctx.emit.scalars(ctx.state.axes(phase=phase_name), ctx.collect())
    schedule.keep_rollouts(groups, advantages)
    _progress(config, ctx, "", began)


def _rollout(config: RlConfig, parts: Parts, ctx: Context) -> list[Group]:
    with guarded("curriculum", parts.curriculum):
        draws = parts.curriculum.select(config.algorithm.prompts_per_iteration, ctx)
    for part in parts.prompting:
        with guarded("prompting", part):
            draws = [type(d)(part.rewrite(d.prompt, ctx), d.ordinal, d.probability) for d in draws]
    with guarded("rollout_plan", parts.plan):
        groups = parts.plan.rollout(draws, ctx)
    for group in groups:
        reward_group(parts, group, ctx)
    ctx.groups = groups
    return groups


def reward_group(parts: Parts, group: Group, ctx: Context) -> None:
    """Fills every trajectory's named rewards and its training reward: the weighted sum of what has a verdict."""
    for reward in parts.rewards:
        with guarded("reward", reward):
            scored = reward.score(group, ctx)
            if len(scored) != len(group.trajectories):
                raise MethodError(
                    f"{type(reward).__name__} returned {len(scored)} rewards for {len(group.trajectories)} trajectories"
                )
        for trajectory, named in zip(group.trajectories, scored, strict=True):
            trajectory.rewards.update(named)
    weights = {k: w for reward in parts.rewards for k, w in reward.weights.items()}
    for t in group.trajectories:
        judged = [w * v for k, w in weights.items() if w and (v := t.rewards.get(k)) is not None]
        t.reward = sum(judged) if judged else None


def _transform(parts: Parts, plan: PhasePlan, groups: list[Group], ctx: Context) -> tuple[list[Group], list[Group]]:
    trained, dropped = groups, []
    for part in (*parts.transforms, *plan.transforms):
        with guarded("transform", part):
            result = part.apply(trained, ctx)
        trained = result.groups
        dropped += result.dropped
        if result.refill:
            raise MethodError(
                f"{type(part).__name__} asked for {result.refill} more groups; refilling is not part of this release"
            )
    ctx.state.counters.discarded_tokens += sum(t.sampled_tokens for g in dropped for t in g.trajectories)
    return trained, dropped


def _learn(
    config: RlConfig, parts: Parts, plan: PhasePlan, groups: Sequence[Group], ctx: Context, schedule: Schedule
) -> dict[int, float]:
    """Samples, columns, advantages and the update; returns the mean advantage by trajectory identity."""
    samples: list[Sample] = []
    for group in groups:
        for trajectory in group.trajectories:
            with guarded("samples", parts.samples):
                samples += parts.samples.samples(trajectory, group, ctx)
    batch = build_batch(samples, ctx.policy.pad_id)
    objectives = list(plan.objectives) if plan.objectives is not None else parts.objectives
    steps = 1 if plan.single_step else config.algorithm.num_iterations * config.algorithm.minibatches
    fill_columns(batch, objectives, ctx, config, steps=steps)
    means: dict[int, float] = {}
    if plan.advantages:
        batch.columns["advantage"] = advantage_column(parts, batch, ctx)
        first = batch.columns["advantage"][:, 0].tolist() if batch.ids_NT.shape[1] else []
        means = {id(s.trajectory): a for s, a in zip(samples, first, strict=True)}
    for objective in objectives:
        with guarded("objective", objective), torch.no_grad():
            objective.prepare(batch, ctx)
    if not bool(batch.mask_NT.any()):
        ctx.emit.log(f"iteration {ctx.iteration}: nothing to train on in this batch; the update is skipped", "warning")
        return means
    update(batch, plan, objectives, parts.updates, ctx, config)
    return means


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
