"""A trust region for each prompt by Lagrangian duality. Source: QUATRO, arXiv 2602.04620; the formulas are ours, the exact
solution of the problem that its abstract states: maximise E_π[A] under KL(π‖π_old) ≤ ε, for every prompt.

The optimum is π_old·exp(A/λ)/Z with Z = E_old[exp(A/λ)], on a group of G rollouts the ratios r* = exp(A/λ)/Z, and λ is
where their KL is ε. All of it is float64; groups are rows (P, G), padded, with a mask.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from trainer.advantages.groups import COLLAPSED, group_index, group_mean
from trainer.contract.drawn import scatter
from trainer.core.context import Context
from trainer.core.slots import Scores, Term
from trainer.core.types import Batch

if TYPE_CHECKING:
    from trainer.contract.config import RlConfig
    from trainer.methods.quatro import QuatroParams

LEAST, MOST = 1e-3, 1e3
"""Between which multipliers are looked for."""
HALVINGS = 60
ALONE = 1.0
"""The multiplier of groups without variance in a batch where no group has any."""
LOG_RATIO_LIMIT = 20.0
LOG_LAMBDA, LOG_TARGET, SHARE = "quatro/lambda", "quatro/log_target", "quatro/share"


def log_target(advantage_PG: torch.Tensor, mask_PG: torch.Tensor, multiplier_P: torch.Tensor) -> torch.Tensor:
    """log r* = (A − λ log Z)/λ (P, G), −∞ in padding."""
    tilted = (advantage_PG / multiplier_P[:, None]).masked_fill(mask_PG == 0, -torch.inf)
    return tilted.log_softmax(1) + mask_PG.sum(1, keepdim=True).log()


def divergence(log_target_PG: torch.Tensor, mask_PG: torch.Tensor) -> torch.Tensor:
    """KL(π*‖π_old) of each group (P,): Σ w log(G·w) with w = r*/G."""
    weight = log_target_PG.exp() / mask_PG.sum(1, keepdim=True)
    return (weight * torch.where(mask_PG > 0, log_target_PG, 0.0)).sum(1)


def multipliers(advantage_PG: torch.Tensor, mask_PG: torch.Tensor, budget: float) -> torch.Tensor:
    """λ (P,) at which each group's KL is ``budget``, by bisection of log λ in [1e-3, 1e3]; NaN where the advantages span less
    than 1e-6. Where even all weight on the best rollouts stays within the budget it is 1e-3: the region doesn't bind."""
    if advantage_PG.shape != mask_PG.shape or advantage_PG.ndim != 2:
        raise ValueError(f"expected (P, G) twice, found {tuple(advantage_PG.shape)} and {tuple(mask_PG.shape)}")
    low = torch.full((len(advantage_PG),), math.log(LEAST), dtype=torch.double)
    high = torch.full_like(low, math.log(MOST))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = divergence(log_target(advantage_PG, mask_PG, middle.exp()), mask_PG) > budget
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    top = advantage_PG.masked_fill(mask_PG == 0, -torch.inf).amax(1)
    bottom = advantage_PG.masked_fill(mask_PG == 0, torch.inf).amin(1)
    slack = divergence(log_target(advantage_PG, mask_PG, torch.full_like(low, LEAST)), mask_PG) <= budget
    found = torch.where(slack, LEAST, ((low + high) / 2).exp())
    return torch.where(top - bottom < COLLAPSED, torch.nan, found)


def coefficient(
    log_ratio: torch.Tensor, log_target_: torch.Tensor, multiplier: torch.Tensor, most: float
) -> torch.Tensor:
    """c = λ·ρ·(log r* − log ρ), the weight of ∇log π: 0 at the optimum, of the other sign beyond it. ρ is held to ``most``."""
    return multiplier * log_ratio.exp().clamp(max=most) * (log_target_ - log_ratio)


def gain(log_ratio: torch.Tensor, log_target_: torch.Tensor, multiplier: torch.Tensor) -> torch.Tensor:
    """ρ·(A − λ log Z) − λ·(ρ log ρ − ρ), what is maximised; its derivative by log ρ is `coefficient`."""
    ratio = log_ratio.exp()
    return multiplier * (ratio * log_target_ - ratio * log_ratio + ratio)


class Centred:
    """R − mean of the prompt's rollouts, not divided by a std: the size of a step is the multiplier's matter."""

    def __init__(self, params: QuatroParams, config: RlConfig) -> None:
        pass

    def estimate(self, batch: Batch, ctx: Context) -> torch.Tensor:
        """(N,)."""
        penalty = batch.columns.get("kl_penalty")
        taken = 0.0 if penalty is None else (penalty * batch.mask_NT).sum(1)
        return group_mean(batch.reward_N - taken, batch.group_ids)


class TrustRegion:
    """The policy term: pulls every rollout's ratio to the one that is best within its prompt's region, from both sides."""

    needs = frozenset({"advantage"})

    def __init__(self, params: QuatroParams, config: RlConfig) -> None:
        self.p = params

    def prepare(self, batch: Batch, ctx: Context) -> None:
        """Solves each prompt's dual once for the whole batch; fills the columns (N,) that the term reads. ``quatro/share`` is
        1/G, 0 for rollouts without a trained token of the policy's own."""
        mask_NT = batch.on_policy_NT
        length_N = mask_NT.sum(1)
        advantage_N = (batch.columns["advantage"] * mask_NT).sum(1) / length_N.clamp(min=1)
        index, groups = group_index(batch.group_ids)
        rows = [torch.nonzero((index == g) & (length_N > 0))[:, 0] for g in range(groups)]
        width = max(1, *(len(r) for r in rows)) if rows else 1
        advantage_PG, mask_PG = (torch.zeros((groups, width), dtype=torch.double) for _ in range(2))
        for g, members in enumerate(rows):
            advantage_PG[g, : len(members)] = advantage_N[members].double()
            mask_PG[g, : len(members)] = 1
        solved = multipliers(advantage_PG, mask_PG, self.p.budget)
        mixed = ~torch.isnan(solved)
        floored = solved.clamp(min=self.p.floor)
        other = float(floored[mixed].median()) if bool(mixed.any()) else ALONE
        multiplier_P = torch.where(mixed, floored, other)
        target_PG = log_target(advantage_PG, mask_PG, multiplier_P)
        target_N, share_N = torch.zeros(batch.size), torch.zeros(batch.size)
        for g, members in enumerate(rows):
            target_N[members] = target_PG[g, : len(members)].float()
            share_N[members] = 1 / max(1, len(members))
        columns = batch.columns
        columns[LOG_LAMBDA], columns[LOG_TARGET], columns[SHARE] = multiplier_P[index].float(), target_N, share_N
        self._tell(floored[mixed], solved[mixed], advantage_PG[mixed], mask_PG[mixed], batch, mixed[index], ctx)

    def terms(self, micro: Batch, scores: Scores, ctx: Context) -> list[Term]:
        """One sequence-level term, a mean over prompts of means over their rollouts."""
        columns, mask_NT, now = micro.columns, micro.on_policy_NT, scores.logprobs_NT
        old = columns.get("old_logprobs", now.detach())
        length_N = mask_NT.sum(1).clamp(min=1) if self.p.log_ratio == "mean" else 1.0
        score_N = torch.where(mask_NT > 0, now, 0.0).sum(1) / length_N
        moved_N = (torch.where(mask_NT > 0, now - old, 0.0).sum(1) / length_N).detach()
        log_ratio, multiplier, target = (
            moved_N.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT),
            columns[LOG_LAMBDA],
            columns[LOG_TARGET],
        )
        c = coefficient(log_ratio, target, multiplier, self.p.most_ratio)
        value = gain(log_ratio.clamp(max=math.log(self.p.most_ratio)), target, multiplier)
        if self.p.scale == "over_lambda":
            c, value = c / multiplier, value / multiplier
        share = columns[SHARE]
        # The value is the dual's, the gradient c·∇log π, also where the ratio is held.
        loss = -share * (value + c * (score_N - score_N.detach()))
        self._note(log_ratio, target, multiplier, c, share, ctx)
        return [Term("policy", loss, 1.0, None, denominator="groups")]

    def _note(
        self, log_ratio: torch.Tensor, target: torch.Tensor, multiplier: torch.Tensor, c: torch.Tensor,
        share: torch.Tensor, ctx: Context,
    ) -> None:  # fmt: skip
        alive, ratio = share > 0, log_ratio.exp().clamp(max=self.p.most_ratio)
        size = c.abs() * (multiplier if self.p.scale == "over_lambda" else 1.0)
        count = float(alive.sum())
        ctx.tally("quatro/kl_realised", float((ratio * log_ratio - ratio + 1)[alive].sum()), count)
        ctx.tally("quatro/kl_budget_ratio", float((ratio * log_ratio - ratio + 1)[alive].sum()) / self.p.budget, count)
        ctx.tally(
            "quatro/stabiliser_share",
            float((multiplier * ratio * log_ratio.abs())[alive].sum()),
            float(size[alive].sum()),
        )
        ctx.tally("quatro/outside_fraction", float((log_ratio.abs() > target.abs())[alive].sum()), count)

    def _tell(
        self, kept: torch.Tensor, solved: torch.Tensor, advantage_PG: torch.Tensor, mask_PG: torch.Tensor, batch: Batch,
        mixed_N: torch.Tensor, ctx: Context,
    ) -> None:  # fmt: skip
        bound = (solved < self.p.floor) | (solved <= LEAST) | (solved >= MOST * (1 - 1e-9))
        ctx.tally("quatro/dual_at_bound", float(bound.sum()), float(len(solved)))
        if len(kept):
            for name, number in (("mean", kept.mean()), ("min", kept.min()), ("max", kept.max())):
                ctx.metrics[f"quatro/lambda_{name}"] = float(number)
        rate: dict[str, list[float]] = {}
        for group, sample, mixed, multiplier in zip(
            batch.group_ids, batch.samples, mixed_N.tolist(), batch.columns[LOG_LAMBDA].tolist(), strict=True
        ):
            if mixed:
                found = rate.setdefault(group, [0.0, 0.0, multiplier])
                found[0] += sample.trajectory.correct
                found[1] += 1
        points = [(right / count, multiplier) for right, count, multiplier in rate.values()]
        axes = ctx.state.axes(iteration=ctx.iteration)
        ctx.emit(scatter(axes, "quatro/lambda_vs_p", points, x_title="share right", y_title="λ"))
