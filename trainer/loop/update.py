"""From a batch to changed weights: reference passes, objective terms, backward, optimiser step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch

from trainer.contract.config import RlConfig
from trainer.core.context import Context
from trainer.core.errors import NumericError
from trainer.core.guard import guarded
from trainer.core.slots import AdvantageBase, Objective, PhasePlan, Scores, Step, Update
from trainer.core.types import Batch
from trainer.core.world import World
from trainer.diagnostics.gap import Gap
from trainer.loop.batching import microbatches, minibatches, rows_of
from trainer.loop.forward import score_batch
from trainer.loop.optim import learning_rate, set_rate
from trainer.objectives.aggregate import Denominators, reduce_term
from trainer.objectives.kl import kl_estimate
from trainer.policy.load import Policy
from trainer.policy.shards import gathered
from trainer.policy.truncation import Finding, Keep, Kept
from trainer.rollout.distribution import sampling_logprobs
from trainer.rollout.sampler import SamplingParams

MICROBATCH_TOKENS_WITHOUT_GRADIENT = 65536
LOGPROBS, ENTROPY, COLLISION = "logprobs", "entropy", "collision"


def scored(
    policy: Policy,
    batch: Batch,
    temperature: float,
    heads: Mapping[str, torch.nn.Module] | None = None,
    *,
    keep: Keep | None = None,
    collision: bool = False,
    world: World | None = None,
) -> Scores:
    """Log-probs, entropies, heads and, if asked, Σπ² (N, T) of the batch's ids under a policy, without gradient; 0 on
    padding. With ``keep`` this is the pass that finds the tokens which the batch keeps. The processes of ``world`` score a
    share each."""
    if world is not None and world.size > 1:
        return _scored_in_shares(policy, batch, temperature, heads, keep, collision, world)
    heads = heads or {}
    out = {name: torch.zeros(batch.ids_NT.shape) for name in _names(heads, collision)}
    kept: dict[int, Kept] = {}
    with torch.no_grad():
        for rows in microbatches(batch, MICROBATCH_TOKENS_WITHOUT_GRADIENT):
            part = rows_of(batch, rows)
            finding = Finding(keep, part) if keep is not None else None
            found = score_batch(policy, part, temperature, heads=heads, truncation=finding, collision=collision)
            if finding is not None:
                kept.update(zip(rows, finding.kept.split(part.length_N.tolist()), strict=True))
            width = found.logprobs_NT.shape[1]
            for name, value in _by_name(found).items():
                out[name][torch.tensor(rows), :width] = value
    if keep is not None:
        batch.kept = [kept[row] for row in range(batch.size)]
    return _scores(out)


def _names(heads: Mapping[str, torch.nn.Module], collision: bool) -> list[str]:
    return [LOGPROBS, ENTROPY, *heads, *([COLLISION] if collision else [])]


def _by_name(found: Scores) -> dict[str, torch.Tensor]:
    out = {LOGPROBS: found.logprobs_NT, ENTROPY: found.entropy_NT, **found.heads}
    return out if found.collision_NT is None else {**out, COLLISION: found.collision_NT}


def _scores(by_name: dict[str, torch.Tensor]) -> Scores:
    logprobs, entropy, collision = by_name.pop(LOGPROBS), by_name.pop(ENTROPY), by_name.pop(COLLISION, None)
    return Scores(logprobs, entropy, by_name, collision)


def _scored_in_shares(
    policy: Policy,
    batch: Batch,
    temperature: float,
    heads: Mapping[str, torch.nn.Module] | None,
    keep: Keep | None,
    collision: bool,
    world: World,
) -> Scores:
    shares = world.share_of(batch.group_ids)
    own = rows_of(batch, shares[world.rank])
    parts = world.together(lambda: (scored(policy, own, temperature, heads, keep=keep, collision=collision), own.kept))
    out = {name: torch.zeros(batch.ids_NT.shape) for name in _names(heads or {}, collision)}
    kept: dict[int, Kept] = {}
    for rows, (found, sets) in zip(shares, parts, strict=True):
        for name, value in _by_name(found).items():
            out[name][torch.tensor(rows, dtype=torch.long), : value.shape[1]] = value
        kept.update(zip(rows, sets or (), strict=False))
    if keep is not None:
        batch.kept = [kept[row] for row in range(batch.size)]
    return _scores(out)


def fill_columns(
    batch: Batch, parts: Sequence[Objective | Update | AdvantageBase], ctx: Context, config: RlConfig, *, steps: int
) -> None:
    """The columns that the parts declare. ``old_logprobs`` are also needed when several steps use one batch; without
    them the step is on-policy and the current log-probs stand in. The base's log-probs are also filled in iterations that
    validate, to measure the KL. Where sampling is truncated, the first pass finds the tokens that all others go by."""
    needs = needs_of(parts)
    truncated = config.sampling.truncated
    every = config.evaluation.every
    if config.algorithm.measure_kl and every and ctx.iteration % every == 0:
        needs |= {"reference_logprobs"}
    temperature, columns = config.sampling.temperature, batch.columns
    heads = {name: head.module for name, head in ctx.state.heads.items() if f"old_{name}" in needs}
    if heads or needs & {"old_logprobs", "old_entropy", "old_collision"} or steps > 1 or truncated:
        keep, collision = _keep(config, ctx) if truncated else None, "old_collision" in needs
        found = scored(ctx.policy, batch, temperature, heads, keep=keep, collision=collision, world=ctx.world)
        columns["old_logprobs"] = found.logprobs_NT
        for one in batch.kept or ():
            ctx.tally("sampling/outside_kept", float(one.outside_T.sum()), float((one.counts_T > 0).sum()))
        if "old_entropy" in needs:
            columns["old_entropy"] = found.entropy_NT
        if found.collision_NT is not None:
            columns["old_collision"] = found.collision_NT
        columns.update({f"old_{name}": value for name, value in found.heads.items()})
    for column, name in (("reference_logprobs", "reference"), ("phase_start_logprobs", "phase_start")):
        if column in needs and name in ctx.state.policies:
            policy = ctx.state.policies[name].policy
            columns[column] = scored(policy, batch, temperature, world=ctx.world).logprobs_NT


def _keep(config: RlConfig, ctx: Context) -> Keep:
    """What the sampler keeps of logits."""
    params = SamplingParams.of(config.sampling, ctx.policy.eos_ids)
    return lambda logits: sampling_logprobs(logits, params) > -torch.inf


def needs_of(parts: Sequence[Objective | Update | AdvantageBase]) -> frozenset[str]:
    """Everything that the parts declare."""
    return frozenset().union(*(getattr(part, "needs", ()) for part in parts))


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
    learner = Learner(plan, objectives, updates, ctx, config)
    gap = Gap()
    ctx.policy.model.train()
    for part in updates:
        with guarded("update", part):
            part.before(batch, learner, ctx)
    for epoch in range(epochs):
        for mini in minibatches(batch, parts, ctx, epoch):
            learner.step(mini, objectives, gap if epoch == 0 else Gap())
    for part in updates:
        with guarded("update", part):
            part.after(batch, learner, ctx)
    ctx.policy.model.eval()
    if plan.groups is None:  # earlier policies drew the others, which is no fault of the sampler
        ctx.metrics.update(gap.metrics())
    ctx.state.counters.policy_version += 1
    ctx.sampler.refresh()


class Learner:
    """The policy and its heads under the objectives of an iteration: what `trainer.core.slots.Steps` promises."""

    def __init__(
        self,
        plan: PhasePlan,
        objectives: Sequence[Objective],
        updates: Sequence[Update],
        ctx: Context,
        config: RlConfig,
    ) -> None:
        entry, heads = ctx.state.policies["policy"], ctx.state.heads.values()
        assert entry.optimizer is not None
        self.shards = entry.shards
        self.optimizers = [entry.optimizer, *(h.optimizer for h in heads)]
        self.parameters = [*entry.trained.parameters(), *(p for h in heads for p in h.module.parameters())]
        self.plan, self.objectives, self.updates, self.ctx, self.config = plan, objectives, updates, ctx, config

    def take(self, batch: Batch, objectives: Sequence[Objective] | None = None) -> None:
        """A step beside the iteration's own; nothing is noted of its entropies and of its gap to the sampler."""
        self.step(batch, self.objectives if objectives is None else objectives, None)

    def gradient(self, batch: Batch, objectives: Sequence[Objective] | None = None) -> list[torch.Tensor | None]:
        """The gradient alone; those of a step that is being taken are set aside and put back."""
        policy = list(self.ctx.policy.model.parameters())
        kept = [p.grad for p in self.parameters]
        for p in self.parameters:
            p.grad = None
        self._backward(batch, self.objectives if objectives is None else objectives, self._counts(batch), None)
        found = [p.grad for p in policy]
        for p, grad in zip(self.parameters, kept, strict=True):
            p.grad = grad
        return found

    def scores(self, batch: Batch) -> Scores:
        """Log-probs and entropies by the weights of this moment."""
        return scored(self.ctx.policy, batch, self.config.sampling.temperature, world=self.ctx.world)

    def step(self, mini: Batch, objectives: Sequence[Objective], gap: Gap | None) -> None:
        """One optimiser step on a mini-batch with trained tokens. With a ``gap`` its figures are noted."""
        ctx, counters, counts = self.ctx, self.ctx.state.counters, self._counts(mini)
        if counts.tokens == 0:
            return
        rate = self._set_rates()
        for objective in objectives:
            if hasattr(objective, "before_step"):
                objective.before_step(ctx)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        step = Step(mini, self._backward(mini, objectives, counts, gap))
        for part in self.updates:
            with guarded("update", part):
                part.gradients(step, ctx)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.config.optimizer.max_grad_norm)
        step.norm = float(gathered(norm))
        if not (math.isfinite(step.loss) and math.isfinite(step.norm)):
            ctx.emit.scalars(ctx.state.axes(iteration=ctx.iteration), {"loss": step.loss, "grad_norm": step.norm})
            raise NumericError(
                f"iteration {ctx.iteration}: loss {step.loss}, gradient norm {step.norm}; the weights were not changed. "
                f"Lower optimizer.learning_rate (now {self.config.optimizer.learning_rate}) or fork from the last checkpoint"
            )
        self._apply(step, list(self.updates))
        if self.shards is not None:
            self.shards.hand_over(ctx.policy)
        counters.optimizer_step += 1
        counters.trained_tokens += counts.tokens
        ctx.tally("loss", step.loss, 1.0)
        ctx.tally("grad_norm", step.norm, 1.0)
        ctx.metrics["learning_rate"] = rate
        for objective in objectives:
            if hasattr(objective, "after_step"):
                objective.after_step(ctx)
            if key := getattr(objective, "norm_key", None):
                ctx.tally(key, step.norm, 1.0)

    def _apply(self, step: Step, parts: list[Update]) -> None:
        """The optimisers' steps, inside the parts' wrappings."""
        if not parts:
            for optimizer in self.optimizers:
                optimizer.step()
            return
        with guarded("update", parts[0]):
            parts[0].apply(step, lambda: self._apply(step, parts[1:]), self.ctx)

    def _counts(self, batch: Batch) -> Denominators:
        return Denominators.of(
            batch, max_length=self.config.sampling.max_new_tokens, count_empty=self.config.algorithm.count_empty
        )

    def _set_rates(self) -> float:
        """Sets the policy's rate, which it returns, and for heads their own where the section gives one."""
        config, scale, step = self.config, self.plan.lr_scale, self.ctx.state.counters.optimizer_step
        total = config.budget.iterations * config.algorithm.num_iterations * config.algorithm.minibatches
        rate = learning_rate(config.optimizer, step, total) * scale
        own = config.algorithm.value_learning_rate
        of_heads = rate if own is None else learning_rate(config.optimizer, step, total, base=own) * scale
        set_rate(self.optimizers[0], rate)
        for optimizer in self.optimizers[1:]:
            set_rate(optimizer, of_heads)
        return rate

    def _backward(self, mini: Batch, objectives: Sequence[Objective], counts: Denominators, gap: Gap | None) -> float:
        """The loss of an optimiser step, gradients added. ``gap`` sees each sample by the weights that the step began with.
        Each process works on a share of the groups; all have the whole loss and gap, and the shards the whole gradient."""
        world = self.ctx.world
        own = mini if world.size == 1 else rows_of(mini, world.share_of(mini.group_ids)[world.rank])

        def work() -> tuple[float, Gap]:
            found = Gap()
            loss = self._backward_on(own, objectives, counts, None if gap is None else found)
            if not own.size:
                self._take_part(mini)
            return loss, found

        parts = self.ctx.shared(work, lockstep=True)
        for _, found in parts:
            if gap is not None:
                gap.merge(found)
        return sum(loss for loss, _ in parts)

    def _take_part(self, mini: Batch) -> None:
        """The passes of a process without a group: its gradient is 0, but the sum over processes waits for it."""
        rows = [int(mini.length_N.argmax())]
        scores = score_batch(
            self.ctx.policy, rows_of(mini, rows), self.config.sampling.temperature, through=self._through(last=True)
        )
        (0.0 * scores.logprobs_NT.sum()).backward()

    def _through(self, *, last: bool) -> Callable[..., Scores] | None:
        return None if self.shards is None else partial(self.shards.score, last=last)

    def _backward_on(self, own: Batch, objectives: Sequence[Objective], counts: Denominators, gap: Gap | None) -> float:
        ctx, config = self.ctx, self.config
        total, needs = 0.0, needs_of(objectives)
        heads = {name: head.module for name, head in ctx.state.heads.items() if f"old_{name}" in needs}
        parts = list(microbatches(own, config.algorithm.microbatch_tokens))
        for at, rows in enumerate(parts, 1):
            micro = rows_of(own, rows)
            scores = score_batch(
                ctx.policy,
                micro,
                config.sampling.temperature,
                entropy_grad="entropy_gradient" in needs,
                heads=heads,
                through=self._through(last=at == len(parts)),
            )
            terms = [t for o in objectives for t in o.terms(micro, scores, ctx)]
            loss = torch.stack([reduce_term(t, micro.mask_NT, counts, micro) for t in terms]).sum()
            loss.backward()
            total += float(loss.detach())
            if gap is not None:
                logprobs = scores.logprobs_NT.detach()
                _note(micro, logprobs, scores.entropy_NT.detach(), ctx)
                gap.add(micro.columns.get("old_logprobs", logprobs), micro.columns["sampler_logprobs"])
        return total


def _note(micro: Batch, logprobs_NT: torch.Tensor, entropy_NT: torch.Tensor, ctx: Context) -> None:
    mask = micro.on_policy_NT
    ctx.tally("entropy", float((entropy_NT * mask).sum()), float(mask.sum()))
    if "reference_logprobs" in micro.columns:
        kl = kl_estimate(logprobs_NT, micro.columns["reference_logprobs"], "k3")
        ctx.tally("kl", float((kl * mask).sum()), float(mask.sum()))
