"""From a batch to changed weights: reference passes, objective terms, backward, optimiser step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from trainer.contract.config import RlConfig
from trainer.core.context import Context
from trainer.core.errors import NumericError
from trainer.core.slots import Objective, PhasePlan, Update
from trainer.core.types import Batch
from trainer.loop.batching import microbatches, minibatches, rows_of
from trainer.loop.forward import score_batch
from trainer.loop.optim import learning_rate, set_rate
from trainer.objectives.aggregate import Denominators, reduce_term
from trainer.objectives.kl import kl_estimate
from trainer.policy.load import Policy

MICROBATCH_TOKENS_WITHOUT_GRADIENT = 65536


def logprobs_of(policy: Policy, batch: Batch, temperature: float) -> torch.Tensor:
    """Log-probs (N, T) of the batch's ids under a policy, without gradient; 0 on padding."""
    out = torch.zeros(batch.ids_NT.shape)
    with torch.no_grad():
        for rows in microbatches(batch, MICROBATCH_TOKENS_WITHOUT_GRADIENT):
            scores = score_batch(policy, rows_of(batch, rows), temperature)
            width = scores.logprobs_NT.shape[1]
            out[torch.tensor(rows), :width] = scores.logprobs_NT
    return out


def fill_columns(batch: Batch, objectives: Sequence[Objective], ctx: Context, config: RlConfig, *, steps: int) -> None:
    """The columns that objectives declare. ``old_logprobs`` are also needed when several steps use one batch; without
    them the step is on-policy and the current log-probs stand in. The base's log-probs are also filled in iterations that
    validate, to measure the KL."""
    needs = frozenset().union(*(o.needs for o in objectives))
    every = config.evaluation.every
    if config.algorithm.measure_kl and every and ctx.iteration % every == 0:
        needs |= {"reference_logprobs"}
    temperature = config.sampling.temperature
    if "old_logprobs" in needs or steps > 1:
        batch.columns["old_logprobs"] = logprobs_of(ctx.policy, batch, temperature)
    for column, name in (("reference_logprobs", "reference"), ("phase_start_logprobs", "phase_start")):
        if column in needs and name in ctx.state.policies:
            batch.columns[column] = logprobs_of(ctx.state.policies[name].policy, batch, temperature)


def update(
    batch: Batch,
    plan: PhasePlan,
    objectives: Sequence[Objective],
    updates: Sequence[Update],
    ctx: Context,
    config: RlConfig,
) -> None:
    """All optimiser steps of an iteration; the state's counters move with them.

    Raises NumericError when a loss or gradient is not finite, before the weights are touched.
    """
    epochs, parts = (1, 1) if plan.single_step else (config.algorithm.num_iterations, config.algorithm.minibatches)
    entry = ctx.state.policies["policy"]
    assert entry.optimizer is not None
    model, counters = entry.policy.model, ctx.state.counters
    total_steps = config.budget.iterations * config.algorithm.num_iterations * config.algorithm.minibatches
    model.train()
    for epoch in range(epochs):
        for mini in minibatches(batch, parts, ctx, epoch):
            counts = Denominators.of(mini, max_length=config.sampling.max_new_tokens)
            if counts.tokens == 0:
                continue
            rate = learning_rate(config.optimizer, counters.optimizer_step, total_steps) * plan.lr_scale
            set_rate(entry.optimizer, rate)
            for part in updates:
                part.before_step(ctx)
            entry.optimizer.zero_grad(set_to_none=True)
            loss = _backward(mini, objectives, counts, ctx, config)
            norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), config.optimizer.max_grad_norm))
            if not (math.isfinite(loss) and math.isfinite(norm)):
                ctx.emit.scalars(ctx.state.axes(iteration=ctx.iteration), {"loss": loss, "grad_norm": norm})
                raise NumericError(
                    f"iteration {ctx.iteration}: loss {loss}, gradient norm {norm}; the weights were not changed. Lower "
                    f"optimizer.learning_rate (now {config.optimizer.learning_rate}) or fork from the last checkpoint"
                )
            entry.optimizer.step()
            for part in updates:
                part.after_step(ctx)
            counters.optimizer_step += 1
            counters.trained_tokens += counts.tokens
            ctx.tally("loss", loss, 1.0)
            ctx.tally("grad_norm", norm, 1.0)
            for objective in objectives:
                if key := getattr(objective, "norm_key", None):
                    ctx.tally(key, norm, 1.0)
            ctx.metrics["learning_rate"] = rate
    model.eval()
    counters.policy_version += 1
    ctx.sampler.refresh()


def _backward(
    mini: Batch, objectives: Sequence[Objective], counts: Denominators, ctx: Context, config: RlConfig
) -> float:
    total = 0.0
    for rows in microbatches(mini, config.algorithm.microbatch_tokens):
        micro = rows_of(mini, rows)
        scores = score_batch(
            ctx.policy, micro, config.sampling.temperature, entropy_grad=config.algorithm.entropy_coef > 0
        )
        terms = [t for o in objectives for t in o.terms(micro, scores, ctx)]
        loss = torch.stack([reduce_term(t, micro.mask_NT, counts) for t in terms]).sum()
        loss.backward()
        total += float(loss.detach())
        _note(micro, scores.logprobs_NT.detach(), scores.entropy_NT.detach(), ctx)
    return total


def _note(micro: Batch, logprobs_NT: torch.Tensor, entropy_NT: torch.Tensor, ctx: Context) -> None:
    mask = micro.mask_NT
    ctx.tally("entropy", float((entropy_NT * mask).sum()), float(mask.sum()))
    gap = (logprobs_NT - micro.columns["sampler_logprobs"]).abs()
    if "reference_logprobs" in micro.columns:
        kl = kl_estimate(logprobs_NT, micro.columns["reference_logprobs"], "k3")
        ctx.tally("kl", float((kl * mask).sum()), float(mask.sum()))
    drawn = ~torch.isnan(gap)
    if bool(drawn.any()):
        values = gap[drawn]
        ctx.tally("sampling/sampling_logp_difference/mean", float(values.sum()), float(values.numel()))
        key = "sampling/sampling_logp_difference/max"
        ctx.metrics[key] = max(ctx.metrics.get(key, 0.0), float(values.max()))
