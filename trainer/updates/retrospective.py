"""Looking back at the last update: was it followed by progress? Source: PIPO, arXiv 2604.00860, Eq. 7–11."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from trainer.advantages.groups import group_index
from trainer.core.context import Context
from trainer.core.slots import Scores, Steps, Term, Update
from trainer.core.types import Batch, Sample, Trajectory
from trainer.objectives.kl import kl_estimate
from trainer.objectives.policy_gradient import PolicyGradient

if TYPE_CHECKING:
    from trainer.contract.algorithm import AlgorithmSection
    from trainer.contract.config import RlConfig
    from trainer.methods.pipo import PipoParams

GUARD = 1e-6
FLAT, FLAT_STD = 1e-8, 1e-3
"""A history with a smaller std has no spread: deviations from it are measured by `FLAT_STD`."""
MOST = 5.0
MOST_REWARD = 10.0
SLUG = "pipo"
KEPT = ("old_logprobs", "sampled", "sampler_logprobs", "sampler_weight")


def progress(mean: float, history: Sequence[float], *, detrended: bool = False) -> tuple[float, float, float]:
    """(ξ, expected mean, std): how many stds the batch's mean reward lies above what the history leads one to expect, held to
    ±5. Eq. 8 and 9, with the sample std; ``detrended`` (ours) expects the history's straight line to go on, and takes the
    std around it. A flat history gives 0 for the same mean, else the difference over 1e-3."""
    count = len(history)
    if count < 2:
        raise ValueError(f"expected at least two earlier means, found {count}")
    expected, std = statistics.fmean(history), statistics.stdev(history)
    if detrended:
        at = range(count)
        slope = statistics.covariance(at, history) / statistics.variance(at)
        middle = statistics.fmean(at)
        line = [expected + slope * (x - middle) for x in at]
        expected += slope * (count - middle)
        left = math.fsum((y - fit) ** 2 for y, fit in zip(history, line, strict=True))
        std = math.sqrt(left / (count - 2)) if count > 2 else 0.0
    off = mean - expected
    if std < FLAT:
        std = FLAT_STD
        off = 0.0 if abs(off) < FLAT else off
    return max(-MOST, min(MOST, off / std)), expected, std


def damped(xi: float, negative: float) -> float:
    """φ(ξ) = ξ where ξ ≥ 0, else λ·ξ. Eq. 10."""
    return xi if xi >= 0 else negative * xi


def attribution(advantage_N: torch.Tensor, group_ids: Sequence[str]) -> torch.Tensor:
    """a = G·Ā/(Σ_group |Ā| + 1e-6), (N,): who of a group was to thank, whatever the scale of the base's advantages."""
    index, groups = group_index(group_ids)
    size = torch.bincount(index, minlength=groups).double()
    total = torch.zeros(groups, dtype=torch.double).index_add(0, index, advantage_N.double().abs())
    return advantage_N.double() * (size / (total + GUARD))[index]


def kept(batch: Batch) -> dict[str, Any]:
    """The batch as values and tensors that a state can hold, with each row's attribution."""
    length_N = batch.mask_NT.sum(1).clamp(min=1)
    advantage_N = (batch.columns["advantage"] * batch.mask_NT).sum(1) / length_N
    return {
        "prefix": batch.prefix_ids_NP.clone(), "prefix_len": batch.prefix_len_N.clone(), "ids": batch.ids_NT.clone(),
        "length": batch.length_N.clone(), "mask": batch.mask_NT.clone(), "reward": batch.reward_N.clone(),
        "groups": list(batch.group_ids), "attribution": attribution(advantage_N, batch.group_ids),
        "columns": {name: batch.columns[name].clone() for name in KEPT if name in batch.columns},
    }  # fmt: skip


def restored(values: dict[str, Any], reward: float) -> Batch:
    """The kept batch with advantages a·φ, held to ±10, at every token."""
    groups, mask = values["groups"], values["mask"]
    nothing = Sample((), (), (), (), (), "", Trajectory([], "", 0, "eos"))
    advantage = (values["attribution"] * reward).clamp(-MOST_REWARD, MOST_REWARD).to(mask.dtype)
    return Batch(
        samples=[nothing] * len(groups),
        prefix_ids_NP=values["prefix"], prefix_len_N=values["prefix_len"], ids_NT=values["ids"],
        length_N=values["length"], mask_NT=mask, group_ids=list(groups), reward_N=values["reward"],
        columns={**values["columns"], "advantage": advantage[:, None].expand(mask.shape).contiguous()},
    )  # fmt: skip


class Replayed(PolicyGradient):
    """The base's policy term on an earlier batch; its clipping and drift are noted apart."""

    def terms(self, micro: Batch, scores: Scores, ctx: Context) -> list[Term]:
        """As the base's, and the KL from the policy that sampled the batch."""
        mask, old = micro.on_policy_NT, micro.columns["old_logprobs"]
        moved = kl_estimate(scores.logprobs_NT.detach(), old, "k3")
        ctx.tally("pipo/retro_kl", float((moved * mask).sum()), float(mask.sum()))
        return super().terms(micro, scores, ctx)

    def _note_clipping(self, micro: Batch, ratio_NT: torch.Tensor, ctx: Context) -> None:
        trained, advantage, a = micro.on_policy_NT > 0, micro.columns["advantage"], self.a
        outside = (advantage < 0) & (ratio_NT < 1 - a.epsilon) | (advantage > 0) & (ratio_NT > 1 + a.epsilon_high)
        ctx.tally("pipo/retro_clip_fraction", float((trained & outside).sum()), float(trained.sum()))


class Retrospective(Update):
    """Before the base's update, one more on the batch before: reinforced if progress followed it, weakly undone if not."""

    needs = frozenset({"old_logprobs"})

    def __init__(self, params: PipoParams, config: RlConfig) -> None:
        self.p = params
        self.algorithm: AlgorithmSection = config.algorithm

    def before(self, batch: Batch, steps: Steps, ctx: Context) -> None:
        """The step on the kept batch, once the window is full enough. The iteration's own old log-probs are those from before
        it: of the policy that sampled."""
        memory = ctx.state.memory_of(SLUG)
        mean = self._mean(ctx)
        if "advantage" not in batch.columns or mean is None:
            return
        ctx.metrics["pipo/mu"] = mean
        history = memory.get("means", [])
        if len(history) < max(2, self.p.least) or "batch" not in memory:
            return
        xi, expected, std = progress(mean, history, detrended=self.p.anchor == "detrended")
        phi = 1.0 if self.p.xi == "one" else damped(xi, self.p.negative)
        ctx.metrics.update({"pipo/mu_his": expected, "pipo/sigma_his": std, "pipo/xi": xi, "pipo/phi": phi})
        ctx.metrics["pipo/negative_steps"] = float(phi < 0)
        if phi:
            steps.take(restored(memory["batch"], phi), [Replayed(self.algorithm)])

    def after(self, batch: Batch, steps: Steps, ctx: Context) -> None:
        """Keeps the batch and its mean for the next iteration."""
        memory, mean = ctx.state.memory_of(SLUG), self._mean(ctx)
        if "advantage" in batch.columns and mean is not None:
            memory["means"] = [*memory.get("means", []), mean][-self.p.window :]
            memory["batch"] = kept(batch)

    def _mean(self, ctx: Context) -> float | None:
        """Mean reward of all rollouts, those of groups too that a filter has dropped; None without a verdict."""
        rewards = [t.reward for g in ctx.groups for t in g.trajectories if t.reward is not None]
        return statistics.fmean(rewards) if rewards else None
