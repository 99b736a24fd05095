"""The KL to the base as a part: in the loss or in the reward, with a fixed or an adaptive coefficient."""

from __future__ import annotations

import torch

from trainer.contract.algorithm import AlgorithmSection
from trainer.core.context import Context
from trainer.core.slots import Scores, Term
from trainer.core.types import Batch
from trainer.objectives.kl import adapted, kl_estimate
from trainer.objectives.ratio import RATIOS

MEMORY = "kl"


class KlToBase:
    """In the loss a token-level term, with the policy term's aggregation. In the reward a column ``kl_penalty`` (N, T) of
    β·KL, which `trainer.advantages.estimators.Outcome` takes off each token's reward.

    An adaptive β is that of the iterations before; it moves once an iteration by the mean over sequences of their mean
    KL under the policy that began it.
    """

    def __init__(self, algorithm: AlgorithmSection) -> None:
        self.a = algorithm
        needs = {"reference_logprobs"}
        if algorithm.kl_place == "reward" or algorithm.kl_target is not None:
            needs.add("old_logprobs")
        self.needs = frozenset(needs)

    def coefficient(self, ctx: Context) -> float:
        """β as it stands."""
        return float(ctx.state.memory_of(MEMORY).get("coef", self.a.kl_coef))

    def penalise(self, batch: Batch, ctx: Context) -> None:
        """Fills ``kl_penalty`` where the KL is in the reward; before advantages are made."""
        if self.a.kl_place != "reward":
            return
        kl = kl_estimate(batch.columns["old_logprobs"], batch.columns["reference_logprobs"], self.a.kl_estimator)
        batch.columns["kl_penalty"] = self.coefficient(ctx) * torch.where(batch.on_policy_NT > 0, kl, 0.0)

    def prepare(self, batch: Batch, ctx: Context) -> None:
        """Notes β; where it is adaptive, fixes the one of this iteration and moves the stored one on."""
        self._now = self.coefficient(ctx)
        ctx.metrics["kl_coef"] = self._now
        if self.a.kl_target is None:
            return
        kl = kl_estimate(batch.columns["old_logprobs"], batch.columns["reference_logprobs"], self.a.kl_estimator)
        length_N = batch.on_policy_NT.sum(1)
        alive = length_N > 0
        if not bool(alive.any()):
            return
        per_sequence = torch.where(batch.on_policy_NT > 0, kl, 0.0).double().sum(1)[alive] / length_N[alive]
        ctx.state.memory_of(MEMORY)["coef"] = adapted(
            self._now,
            float(per_sequence.mean()),
            target=self.a.kl_target,
            horizon=self.a.kl_horizon,
            sequences=int(alive.sum()),
        )

    def terms(self, micro: Batch, scores: Scores, ctx: Context) -> list[Term]:
        """β·KL where it is in the loss, times the ratio where the section says so."""
        a, now = self.a, scores.logprobs_NT
        if a.kl_place != "loss":
            return []
        kl = kl_estimate(now, micro.columns["reference_logprobs"], a.kl_estimator)
        if a.kl_ratio:
            kl = kl * RATIOS[a.ratio](now, micro.columns.get("old_logprobs", now.detach()), micro.on_policy_NT)
        return [Term("kl", torch.where(micro.on_policy_NT > 0, kl, 0.0), self._now, a.aggregation)]
