"""The base row's policy term: surrogate of the ratio and the advantage. Which ones is the algorithm section's matter."""

from __future__ import annotations

import torch

from trainer.contract.algorithm import AlgorithmSection
from trainer.core.context import Context
from trainer.core.slots import Scores, Term
from trainer.core.types import Batch
from trainer.objectives.mismatch import Correction, correction
from trainer.objectives.surrogate import surrogate
from trainer.objectives.token_masks import HIGH_ENTROPY, high_entropy, on_policy_enough

RATIO = "sampling/importance_sampling_ratio"


class PolicyGradient:
    """Reads the columns ``advantage`` (N, T) and ``old_logprobs`` (N, T; left out when the step is on-policy), and adds
    ``sampler_weight`` and ``mask/high_entropy`` where the section asks for them. It is about sampled tokens: others that are
    trained count in the mean and are no part of the term. A correction that is left ``auto`` is none: the loop settles it
    before it makes the parts."""

    def __init__(self, algorithm: AlgorithmSection) -> None:
        self.a = algorithm
        needs = {"advantage"}
        self.corrects = algorithm.mismatch not in ("off", "auto")
        if self.corrects:
            needs.add("old_logprobs")
        if algorithm.top_entropy < 1:
            needs.add("old_entropy")
        self.needs = frozenset(needs)

    def prepare(self, batch: Batch, ctx: Context) -> None:
        """The sampler correction and the entropy border, which are about the whole batch."""
        a, columns = self.a, batch.columns
        if self.corrects:
            found = correction(
                columns["old_logprobs"],
                columns["sampler_logprobs"],
                batch.on_policy_NT,
                mode=a.mismatch,
                low=a.mismatch_min,
                high=a.mismatch_max,
            )
            columns["sampler_weight"] = found.weight
            _note_correction(found, batch.on_policy_NT, ctx)
        if a.top_entropy < 1:
            columns[HIGH_ENTROPY] = high_entropy(columns["old_entropy"], batch.mask_NT, a.top_entropy)

    def terms(self, micro: Batch, scores: Scores, ctx: Context) -> list[Term]:
        """One token-level term, reduced as the algorithm says."""
        a, columns, now = self.a, micro.columns, scores.logprobs_NT
        old = columns.get("old_logprobs", now.detach())
        advantage, mask_NT = columns["advantage"], micro.on_policy_NT
        loss, ratio = surrogate(a, now, old, advantage, mask_NT, columns.get("sampler_weight"))
        loss = torch.where(mask_NT > 0, loss, 0.0)
        if a.off_policy_kl is not None:
            sampler = columns["sampler_logprobs"]
            loss = loss * on_policy_enough(advantage, now, sampler, mask_NT, a.off_policy_kl)
        if HIGH_ENTROPY in columns:
            loss = loss * columns[HIGH_ENTROPY]
        self._note_clipping(micro, ratio.detach().expand_as(loss), ctx)
        return [Term("policy", loss, 1.0, a.aggregation)]

    def _note_clipping(self, micro: Batch, ratio_NT: torch.Tensor, ctx: Context) -> None:
        trained, advantage, a = micro.on_policy_NT > 0, micro.columns["advantage"], self.a
        count = float(trained.sum())
        if a.surrogate == "clip":
            low = (trained & (advantage < 0) & (ratio_NT < 1 - a.epsilon)).sum()
            high = (trained & (advantage > 0) & (ratio_NT > 1 + a.epsilon_high)).sum()
            ctx.tally("clip_ratio/low_mean", float(low), count)
            ctx.tally("clip_ratio/high_mean", float(high), count)
        elif a.surrogate == "cispo":
            cap = 1 + a.epsilon_high if a.cispo_cap is None else a.cispo_cap
            capped = trained & ((ratio_NT > cap) | (ratio_NT < a.cispo_floor))
            ctx.tally("cispo_clip_ratio", float(capped.sum()), count)


def _note_correction(found: Correction, mask_NT: torch.Tensor, ctx: Context) -> None:
    """The weights' spread over trained tokens, or over sequences with one, and how many the bounds acted on."""
    chosen = mask_NT > 0 if found.raw.shape == mask_NT.shape else mask_NT.sum(1, keepdim=True) > 0
    if not bool(chosen.any()):
        return
    weight = found.weight[chosen]
    ctx.metrics[f"{RATIO}/min"] = float(weight.min())
    ctx.metrics[f"{RATIO}/mean"] = float(weight.double().mean())
    ctx.metrics[f"{RATIO}/max"] = float(weight.max())
    ctx.metrics[f"{RATIO}/outside"] = float(found.outside[chosen].double().mean())
