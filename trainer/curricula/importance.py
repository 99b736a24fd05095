"""Prompts drawn by how much their rewards spread, and the weights that keep the update unbiased. Source: IS-GRPO,
arXiv 2601.23135; the rule is ours, the simplest that has what the abstract says of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from trainer.core.context import Context
from trainer.core.slots import Draw
from trainer.core.types import Batch, Group, Prompt
from trainer.curricula.posterior import Beta

if TYPE_CHECKING:
    from trainer.contract.config import RlConfig
    from trainer.methods.is_grpo import IsGrpoParams

MEMORY = "is-grpo"


def spread(success: float) -> float:
    """σ = √(p(1 − p)), the std of a reward of 0 or 1."""
    return math.sqrt(max(0.0, success * (1 - success)))


def chances(sigmas: Sequence[float], floor: float) -> list[float]:
    """q = (1 − η)·σ/Σσ + η/n for each prompt of the pool; uniform where all σ are 0."""
    total, size = math.fsum(sigmas), len(sigmas)
    if not total:
        return [1 / size] * size
    return [(1 - floor) * s / total + floor / size for s in sigmas]


def weight(chance: float, size: int, most: float) -> float:
    """ω = 1/(n·q), held to ``most``: with it, the mean over draws of ω·g has the expectation of g over the whole pool."""
    return min(most, 1 / (size * chance))


def heterogeneity(sigmas: Sequence[float]) -> float:
    """κ = (mean σ)²/mean σ², the factor of the second moment: 1 where all prompts spread alike. NaN where none does."""
    square = math.fsum(s * s for s in sigmas)
    return math.fsum(sigmas) ** 2 / (len(sigmas) * square) if square else math.nan


def posteriors(ctx: Context) -> dict[str, list[float]]:
    """[a, b] of the problems seen so far, by uid; saved with the state."""
    table: dict[str, list[float]] = ctx.state.memory_of(MEMORY).setdefault("posteriors", {})
    return table


def sigma_of(prompt: Prompt, table: dict[str, list[float]]) -> float:
    """What earlier visits say of a prompt's spread; ½ before the first."""
    return spread(Beta(*table.get(prompt.uid, (1.0, 1.0))).mean)


class SpreadSampling:
    """Draws prompts independently, with replacement, in proportion to the spread that earlier visits showed."""

    def __init__(self, params: IsGrpoParams, config: RlConfig) -> None:
        self.p = params

    def select(self, count: int, ctx: Context) -> list[Draw]:
        """``count`` draws; a prompt that comes again is told apart by its ordinal."""
        table = posteriors(ctx)
        sigmas = [sigma_of(prompt, table) for prompt in ctx.pool]
        q = chances(sigmas, self.p.floor)
        chosen = ctx.rng("curriculum", len(ctx.drawn)).choices(range(len(q)), q, k=count)
        seen: dict[str, int] = {}
        draws = []
        for at in chosen:
            prompt = ctx.pool[at]
            seen[prompt.uid] = seen.get(prompt.uid, -1) + 1
            draws.append(Draw(prompt, seen[prompt.uid], count * q[at]))
        self._tell(sigmas, q, ctx)
        return draws

    def observe(self, groups: Sequence[Group], dropped: Sequence[Group], ctx: Context) -> None:
        """Rewards of this visit count from the next one on: used at once they would bias the update."""
        table = posteriors(ctx)
        for group in (*groups, *dropped):
            judged = [t for t in group.trajectories if t.outcome is not None]
            if judged:
                right = sum(t.correct for t in judged)
                known = Beta(*table.get(group.prompt.uid, (1.0, 1.0)))
                after = known.after(right, len(judged) - right, discount=self.p.memory)
                table[group.prompt.uid] = [after.a, after.b]

    def _tell(self, sigmas: Sequence[float], q: Sequence[float], ctx: Context) -> None:
        mean = math.fsum(sigmas) / len(sigmas)
        variance = math.fsum((s - mean) ** 2 for s in sigmas) / len(sigmas)
        m = ctx.metrics
        m["isgrpo/sigma_mean"] = mean
        if mean:
            m["isgrpo/sigma_cv"], m["isgrpo/kappa"] = math.sqrt(variance) / mean, heterogeneity(sigmas)
        m["isgrpo/q_entropy"] = -math.fsum(x * math.log(x) for x in q if x) / math.log(len(q)) if len(q) > 1 else 1.0


class ImportanceWeight:
    """Multiplies a prompt's advantages by ω."""

    def __init__(self, params: IsGrpoParams, config: RlConfig) -> None:
        self.p, self.count = params, config.algorithm.prompts_per_iteration

    def shape(self, advantage: torch.Tensor, batch: Batch, ctx: Context) -> torch.Tensor:
        """(N,) or (N, T) → the same shape."""
        size = len(ctx.pool)
        groups = {g.id: g for g in ctx.groups}
        full = {key: weight(g.probability / self.count, size, math.inf) for key, g in groups.items()}
        held = {key: min(self.p.most, w) for key, w in full.items()}
        weight_N = torch.tensor([held[key] for key in batch.group_ids], dtype=advantage.dtype)
        ctx.metrics["isgrpo/weight_max"] = max(held.values())
        for key, group in groups.items():
            ctx.tally("isgrpo/weight_clipped", float(full[key] > self.p.most), 1.0)
            ctx.tally("isgrpo/zero_variance_draws", float(group.zero_variance), 1.0)
        return advantage * (weight_N if advantage.ndim == 1 else weight_N[:, None])
