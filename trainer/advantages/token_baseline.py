"""Token baselines weighted by realised energy. Source: OTB, arXiv 2602.07078, and its code in verl
(``optimal_token_baseline``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from trainer.advantages.groups import group_index
from trainer.contract.drawn import scatter
from trainer.core.context import Context
from trainer.core.slots import Scores, Term
from trainer.core.types import Batch

if TYPE_CHECKING:
    from trainer.contract.config import RlConfig
    from trainer.methods.otb import OtbParams

GUARD = 1e-8
POWER = "variance_proxy/total_power"


def score_energy(logprob: torch.Tensor, collision: torch.Tensor) -> torch.Tensor:
    """w = ‖e_a − π‖² = 1 − 2π_a + Σ_v π_v², the squared norm of ∂log π_a/∂logits, of any shape; at least 0, below 2."""
    return (1 - 2 * logprob.exp() + collision).clamp(min=0)


def to_go(token_reward_NT: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
    """G_t = Σ_{s ≥ t} m·r_s (N, T), undiscounted."""
    return (token_reward_NT * mask_NT).flip(1).cumsum(1).flip(1)


def group_baseline(
    return_NT: torch.Tensor, weight_NT: torch.Tensor, mask_NT: torch.Tensor, group_ids: Sequence[str],
    *, leave_one_out: bool = False,
) -> torch.Tensor:  # fmt: skip
    """B_t = Σ m·G·W / (Σ m·W + 1e-8) over the group's rows that still run at t, (N, T) float64.

    With ``leave_one_out`` a row's own return stays out of its baseline. Rows that are alone in their group get 0.
    """
    if not return_NT.shape == weight_NT.shape == mask_NT.shape:
        raise ValueError(f"expected equal shapes (N, T), found {return_NT.shape}, {weight_NT.shape}, {mask_NT.shape}")
    index, groups = group_index(group_ids)
    weight = (weight_NT * mask_NT).double()
    weighted = weight * return_NT.double()
    zeros = torch.zeros((groups, mask_NT.shape[1]), dtype=torch.double)
    over, under = zeros.index_add(0, index, weighted)[index], zeros.index_add(0, index, weight)[index]
    if leave_one_out:
        over, under = over - weighted, under - weight
    members = torch.bincount(index, minlength=groups)[index]
    return torch.where((members > 1)[:, None], over / (under.clamp(min=0) + GUARD), 0.0)


def zero_tail(baseline_NT: torch.Tensor, mask_NT: torch.Tensor, group_ids: Sequence[str]) -> torch.Tensor:
    """The baseline with 0 where one row of several is alone: beyond the second longest, if the longest is unique. (N, T);
    masks are 1 from the left on."""
    index, groups = group_index(group_ids)
    zeros = torch.zeros((groups, mask_NT.shape[1]), dtype=torch.double)
    alive = zeros.index_add(0, index, mask_NT.double())[index]
    return torch.where(alive > 1, baseline_NT, 0.0)


def compressed(mask_NT: torch.Tensor) -> torch.Tensor:
    """Place (N, T) of each masked token among the masked tokens of its row, so that the k-th token of the policy meets the
    k-th of the others, whatever tools wrote between; 0 elsewhere."""
    return (mask_NT.long().cumsum(1) - 1).clamp(min=0) * (mask_NT > 0)


def signal_and_noise(power: float, grad_norm: float, rows: int) -> tuple[float, float]:
    """‖g‖², and what of the power mean_i W_i·A_i² is left for each of the other rows, (power − ‖g‖²)/(N − 1), at least 0;
    NaN for one row."""
    signal = grad_norm**2
    return signal, max(0.0, (power - signal) / (rows - 1)) if rows > 1 else math.nan


class TokenBaseline:
    """Return minus a baseline of its own at each token, over the rollouts of the prompt that still run there."""

    needs = frozenset({"old_logprobs", "old_collision"})

    def __init__(self, params: OtbParams, config: RlConfig) -> None:
        self.p = params

    def estimate(self, batch: Batch, ctx: Context) -> torch.Tensor:
        """(N, T), 0 in rows without a verdict; not divided by any std."""
        columns, p = batch.columns, self.p
        judged_N = ~torch.isnan(batch.reward_N)
        mask = (batch.mask_NT * judged_N[:, None]).double()
        penalty = columns.get("kl_penalty", torch.zeros_like(mask)).double()
        returns = to_go(-penalty, mask) + torch.where(judged_N, batch.reward_N, 0.0).double()[:, None]
        energy = score_energy(columns["old_logprobs"].double(), columns["old_collision"].double())
        # Packed to the left (N, K): the policy's own tokens, so that the k-th meets the k-th of the others.
        place = compressed(mask)
        packed = (torch.zeros_like(mask).scatter_add(1, place, value * mask) for value in (returns, energy, mask))
        return_NK, energy_NK, mask_NK = packed
        weight = self._weights(energy_NK, mask_NK)
        baseline = group_baseline(return_NK, weight, mask_NK, batch.group_ids, leave_one_out=p.leave_one_out)
        if p.zero_tail:
            baseline = zero_tail(baseline, mask_NK, batch.group_ids)
        self._tell(return_NK, energy_NK, mask_NK, baseline, batch.group_ids, ctx)
        return ((returns - baseline.gather(1, place)) * mask).to(batch.reward_N.dtype)

    def _weights(self, energy_NK: torch.Tensor, mask_NK: torch.Tensor) -> torch.Tensor:
        """W (N, K): the cumulative energy, or what stands for it, the same at every token of a row."""
        if self.p.baseline == "token":
            return energy_NK.cumsum(1)
        rows = {"sequence": energy_NK.sum(1), "length": mask_NK.sum(1), "mean": (mask_NK.sum(1) > 0).double()}
        return rows[self.p.baseline][:, None].expand(energy_NK.shape)

    def _tell(
        self, return_NK: torch.Tensor, energy_NK: torch.Tensor, mask_NK: torch.Tensor, baseline: torch.Tensor,
        group_ids: Sequence[str], ctx: Context,
    ) -> None:  # fmt: skip
        tokens, final_N, length_N = float(mask_NK.sum()), energy_NK.sum(1), mask_NK.sum(1)
        alive, (index, groups) = length_N > 0, group_index(group_ids)
        mean = group_baseline(return_NK, mask_NK, mask_NK, group_ids)
        together = torch.zeros((groups, mask_NK.shape[1]), dtype=torch.double).index_add(0, index, mask_NK)[index]
        ctx.tally("otb/w_mean", float(energy_NK.sum()), tokens)
        ctx.tally("otb/energy_mean", float((energy_NK.cumsum(1) * mask_NK).sum()), tokens)
        ctx.tally("otb/energy_final", float(final_N.sum()), float(alive.sum()))
        ctx.tally("otb/baseline_minus_mean", float(((baseline - mean) * mask_NK).sum()), tokens)
        ctx.tally("otb/zero_tail_tokens", float(((together == 1) * mask_NK).sum()), tokens)
        advantage_N = ((return_NK - baseline) * mask_NK).sum(1) / length_N.clamp(min=1)
        ctx.tally(POWER, float((final_N * advantage_N**2)[alive].sum()), float(alive.sum()))
        profile = [(k, float((baseline[:, k] * mask_NK[:, k]).sum() / n)) for k, n in enumerate(mask_NK.sum(0)) if n]
        axes = ctx.state.axes(iteration=ctx.iteration)
        ctx.emit(scatter(axes, "otb/baseline_t", profile, x_title="token of the policy", y_title="mean baseline"))


class VarianceProxies:
    """No term of the loss: splits the advantages' power by the gradient's norm into signal and noise."""

    needs: frozenset[str] = frozenset()

    def __init__(self, params: OtbParams, config: RlConfig) -> None:
        self.rows = 0

    def prepare(self, batch: Batch, ctx: Context) -> None:
        """Notes how many rows the batch has."""
        self.rows = int((batch.mask_NT.sum(1) > 0).sum())

    def terms(self, micro: Batch, scores: Scores, ctx: Context) -> list[Term]:
        """None."""
        return []

    def after_step(self, ctx: Context) -> None:
        """By the mean norm of the iteration's steps so far."""
        signal, noise = signal_and_noise(ctx.tallied(POWER), ctx.tallied("grad_norm"), self.rows)
        ctx.metrics["variance_proxy/signal_strength"], ctx.metrics["variance_proxy/pure_noise"] = signal, noise
