"""Group advantages as pure functions: which rollouts of one prompt did better than their siblings.

Source: methods' base reference; GRPO arXiv 2402.03300, Dr. GRPO arXiv 2503.20783, RLOO arXiv 2402.14740. Statistics run
over sequences, groups are named by id, never by position. A reward of NaN means "no verdict": the row is left out of its
group's statistics and its advantage is 0, as is every advantage of a group without variance or with one member.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

COLLAPSED = 1e-6
"""A group whose rewards span less than this has no variance (range test; safer than a std in float32)."""


def group_index(group_ids: Sequence[str]) -> tuple[torch.Tensor, int]:
    """Integer group (N,) of each row in order of first appearance, and the number of groups."""
    order: dict[str, int] = {}
    rows = [order.setdefault(g, len(order)) for g in group_ids]
    return torch.tensor(rows, dtype=torch.long), len(order)


def _statistics(reward_N: torch.Tensor, group_ids: Sequence[str]) -> tuple[torch.Tensor, ...]:
    if reward_N.ndim != 1 or len(group_ids) != reward_N.shape[0]:
        raise ValueError(
            f"rewards must be (N,) with one group id each, found {tuple(reward_N.shape)} and {len(group_ids)} ids"
        )
    index, groups = group_index(group_ids)
    judged = ~torch.isnan(reward_N)
    r = torch.where(judged, reward_N, 0.0).double()
    count = torch.zeros(groups, dtype=torch.double).index_add_(0, index, judged.double())
    total = torch.zeros(groups, dtype=torch.double).index_add_(0, index, r)
    mean = total / count.clamp(min=1)
    centred = torch.where(judged, r - mean[index], 0.0)
    square = torch.zeros(groups, dtype=torch.double).index_add_(0, index, centred**2)
    low = torch.full((groups,), torch.inf, dtype=torch.double)
    high = torch.full((groups,), -torch.inf, dtype=torch.double)
    low = low.scatter_reduce(0, index, torch.where(judged, r, torch.inf), "amin")
    high = high.scatter_reduce(0, index, torch.where(judged, r, -torch.inf), "amax")
    usable = (count >= 2) & (high - low >= COLLAPSED)
    return index, centred, count, square, usable


def group_zscore(
    reward_N: torch.Tensor, group_ids: Sequence[str], *, eps: float = 1e-6, unbiased: bool = True
) -> torch.Tensor:
    """GRPO: (R − mean)/(std + eps) within the group; ``unbiased`` divides the variance by G − 1. Returns (N,)."""
    index, centred, count, square, usable = _statistics(reward_N, group_ids)
    divisor = (count - 1 if unbiased else count).clamp(min=1)
    std = (square / divisor).sqrt()
    out = centred / (std + eps)[index]
    return torch.where(usable[index], out, 0.0).to(reward_N.dtype)


def batch_zscore(
    reward_N: torch.Tensor, group_ids: Sequence[str], *, eps: float = 1e-6, unbiased: bool = True
) -> torch.Tensor:
    """(R − mean of the group)/(std of the whole batch's rewards + eps); TRL's ``scale_rewards="batch"``. Returns (N,)."""
    index, centred, _, _, usable = _statistics(reward_N, group_ids)
    judged = reward_N[~torch.isnan(reward_N)].double()
    std = judged.std(correction=int(unbiased)) if len(judged) > 1 else torch.zeros((), dtype=torch.double)
    return torch.where(usable[index], centred / (std + eps), 0.0).to(reward_N.dtype)


def group_mean(reward_N: torch.Tensor, group_ids: Sequence[str]) -> torch.Tensor:
    """Dr. GRPO: R − mean within the group. Returns (N,)."""
    index, centred, _, _, usable = _statistics(reward_N, group_ids)
    return torch.where(usable[index], centred, 0.0).to(reward_N.dtype)


def leave_one_out(reward_N: torch.Tensor, group_ids: Sequence[str]) -> torch.Tensor:
    """RLOO: R − mean of the others = G/(G − 1)·(R − mean). Returns (N,)."""
    index, centred, count, _, usable = _statistics(reward_N, group_ids)
    factor = count / (count - 1).clamp(min=1)
    return torch.where(usable[index], centred * factor[index], 0.0).to(reward_N.dtype)


def length_weighted(reward_N: torch.Tensor, group_ids: Sequence[str], length_N: torch.Tensor) -> torch.Tensor:
    """OPO (arXiv 2505.23585): R − Σ T·R/Σ T within the group, with T the trained tokens of a sequence. Returns (N,)."""
    index, _, _, _, usable = _statistics(reward_N, group_ids)
    judged = ~torch.isnan(reward_N)
    r = torch.where(judged, reward_N, 0.0).double()
    length = torch.where(judged, length_N, 0).double()
    zeros = torch.zeros(len(usable), dtype=torch.double)
    baseline = zeros.index_add(0, index, length * r) / zeros.index_add(0, index, length).clamp(min=1)
    return torch.where(usable[index] & judged, r - baseline[index], 0.0).to(reward_N.dtype)


def group_std(reward_N: torch.Tensor, group_ids: Sequence[str]) -> torch.Tensor:
    """Unbiased std of each group with at least two verdicts (number of such groups,)."""
    _, _, count, square, _ = _statistics(reward_N, group_ids)
    keep = count >= 2
    return (square[keep] / (count[keep] - 1)).sqrt().to(reward_N.dtype)


def group_success(
    outcome_N: torch.Tensor, group_ids: Sequence[str], *, wrong: float = 0.0, right: float = 1.0
) -> torch.Tensor:
    """Success rate μ̂ = (mean outcome − wrong)/(right − wrong) of each row's group, clamped to [0, 1]; NaN where the group
    has no verdict. Returns (N,). Source: F-GRPO, arXiv 2602.06717, Eq. 11."""
    if not wrong < right:
        raise ValueError(f"outcomes: expected wrong below right, found {wrong} and {right}")
    index, groups = group_index(group_ids)
    judged = ~torch.isnan(outcome_N)
    zeros = torch.zeros(groups, dtype=torch.double)
    count = zeros.index_add(0, index, judged.double())
    total = zeros.index_add(0, index, torch.where(judged, outcome_N, 0.0).double())
    mean = torch.where(count > 0, total / count, torch.nan)
    return ((mean - wrong) / (right - wrong)).clamp(0, 1)[index].to(outcome_N.dtype)
