"""Inverse RL on a group of the policy's own rollouts: match the induced distribution p to a target q, forward KL.

Source: the sps card (arXiv 2604.16995, section 4.1 by reading notes; p, q and the score scale are derived). All of it is
per prompt: M distinct demonstrations with sequence log-probs l (M,), lengths L (M,) and rewards r (M,). Everything here is
without gradient; the gradient of KL(q‖p) with respect to the scores is p − q, so a second pass with constant weights on
each sequence's log-prob gives the exact gradient and may be split at will.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from trainer.advantages.groups import group_index
from trainer.core.context import Context
from trainer.core.slots import Scores, Term
from trainer.core.types import Batch
from trainer.objectives.kl import kl_estimate

Target = Literal["reward_boltzmann", "uniform_distinct", "correct_uniform"]


def target_distribution(reward_M: torch.Tensor, kind: Target, alpha: float) -> torch.Tensor:
    """q (M,): exp(r/α) normalised, uniform, or uniform on r ≥ 1 (all zeros when nothing is correct)."""
    if kind == "reward_boltzmann":
        return torch.softmax(reward_M / alpha, 0)
    if kind == "uniform_distinct":
        return torch.full_like(reward_M, 1.0 / len(reward_M))
    if kind == "correct_uniform":
        correct = (reward_M >= 1.0).to(reward_M.dtype)
        return correct / correct.sum().clamp(min=1)
    raise ValueError(f"unknown target {kind!r}")


@dataclass(frozen=True)
class Match:
    """One prompt's match. ``weight`` (M,) is dKL/dl: the coefficient of each sequence's log-prob in the loss."""

    kl: torch.Tensor
    p: torch.Tensor
    q: torch.Tensor
    weight: torch.Tensor


def match(
    logprob_M: torch.Tensor,
    length_M: torch.Tensor,
    reward_M: torch.Tensor,
    *,
    target: Target,
    alpha: float,
    score: Literal["sum", "length_norm"] = "sum",
    scale: bool = False,
) -> Match:
    """KL(q‖p) with p = softmax(s), s = l or L̄·l/L, divided by τ = max(1, std(s)/2) when ``scale`` (unbiased std)."""
    if not logprob_M.shape == length_M.shape == reward_M.shape or logprob_M.ndim != 1:
        raise ValueError(
            f"expected three (M,) tensors, found {tuple(logprob_M.shape)}, {tuple(length_M.shape)}, "
            f"{tuple(reward_M.shape)}"
        )
    slope = length_M.to(logprob_M.dtype).mean() / length_M if score == "length_norm" else torch.ones_like(logprob_M)
    s = slope * logprob_M
    if scale and len(s) > 1:
        tau = torch.clamp(s.std() / 2, min=1.0)
        s, slope = s / tau, slope / tau
    q = target_distribution(reward_M, target, alpha)
    log_p = torch.log_softmax(s, 0)
    kl = (torch.special.xlogy(q, q) - q * log_p).sum()
    return Match(kl, log_p.exp(), q, (log_p.exp() - q) * slope)


class InverseRL:
    """The objective over a batch of demonstrations: mean over used prompts of KL(q‖p), plus a KL to the phase's start."""

    def __init__(
        self,
        *,
        target: Target,
        alpha: float,
        prompts: Literal["solved", "all"],
        score: Literal["sum", "length_norm"],
        scale: bool,
        kl_coef: float,
    ) -> None:
        self.target: Target = target
        self.alpha = alpha
        self.prompts = prompts
        self.score: Literal["sum", "length_norm"] = score
        self.scale = scale
        self.kl_coef = kl_coef

    needs = frozenset({"old_logprobs", "phase_start_logprobs"})
    norm_key = "sps/irl_grad_norm"

    def prepare(self, batch: Batch, ctx: Context) -> None:
        """Fills the column ``irl_weight`` (N,) from ``old_logprobs`` (N, T): p − q of used prompts, 0 of skipped ones,
        and takes skipped prompts out of the loss mask so that they don't count as groups."""
        sequence_N = (batch.columns["old_logprobs"] * batch.mask_NT).double().sum(1)
        length_N = batch.mask_NT.sum(1).double()
        weight_N = torch.zeros(batch.size, dtype=torch.double)
        index, groups = group_index(batch.group_ids)
        matches: list[Match] = []
        distinct: list[float] = []
        correct: list[float] = []
        for g in range(groups):
            rows = torch.nonzero(index == g)[:, 0]
            reward = batch.reward_N[rows].double().clamp(0, 1)
            solved = int((reward >= 1.0).sum())
            distinct.append(float(len(rows)))
            correct.append(float(solved))
            gated = solved == 0 and (self.prompts == "solved" or self.target == "correct_uniform")
            if len(rows) < 2 or gated or bool(torch.isnan(reward).any()):
                batch.mask_NT[rows] = 0
                continue
            found = match(
                sequence_N[rows],
                length_N[rows],
                reward,
                target=self.target,
                alpha=self.alpha,
                score=self.score,
                scale=self.scale,
            )
            weight_N[rows] = found.weight
            matches.append(found)
            ctx.tally("sps/target_wrong_mass", float(found.q[reward < 1.0].sum()), 1.0)
        batch.columns["irl_weight"] = weight_N.to(batch.columns["old_logprobs"].dtype)
        drawn = max(len(ctx.groups), 1)
        ctx.metrics["sps/demo_distinct"] = sum(distinct) / drawn
        ctx.metrics["sps/demo_correct"] = sum(correct) / drawn
        ctx.metrics["sps/skipped_prompts"] = 1.0 - len(matches) / drawn
        if matches:
            ctx.metrics["sps/irl_kl"] = float(torch.stack([m.kl for m in matches]).mean())
            ctx.metrics["sps/p_neff"] = float(torch.stack([1 / (m.p**2).sum() for m in matches]).mean())

    def terms(self, micro: Batch, scores: Scores, ctx: Context) -> list[Term]:
        """weight·l per sequence over the used prompts; the value itself is not the KL, its gradient is the KL's."""
        sequence_N = (scores.logprobs_NT * micro.mask_NT).sum(1)
        out = [Term("irl", micro.columns["irl_weight"] * sequence_N, 1.0, None, "groups")]
        if self.kl_coef and "phase_start_logprobs" in micro.columns:
            kl = kl_estimate(scores.logprobs_NT, micro.columns["phase_start_logprobs"], "k3")
            ctx.tally("sps/phase_kl", float((kl.detach() * micro.mask_NT).sum()), float(micro.mask_NT.sum()))
            out.append(Term("phase_kl", kl, self.kl_coef, "token-mean"))
        return out
