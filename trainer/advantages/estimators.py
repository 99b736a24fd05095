"""The table of base advantages by name, over one view of a batch's rewards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from trainer.advantages import groups
from trainer.advantages.gae import gae
from trainer.advantages.reinforce import batch_mean, moving_average, reward_minus
from trainer.advantages.whitening import discounted_returns, whiten
from trainer.contract.algorithm import TOKEN_ADVANTAGES, AlgorithmSection
from trainer.core.errors import MethodError


@dataclass(frozen=True)
class Outcome:
    """What an estimator sees, all without gradient.

    ``reward_N`` is NaN where there is no verdict. ``penalty_NT`` is taken off each trained token's reward (KL in the
    reward; zeros without one). ``value_NT`` are the value head's, where there is one. ``memory`` survives the iteration.
    """

    reward_N: torch.Tensor
    group_ids: Sequence[str]
    mask_NT: torch.Tensor
    penalty_NT: torch.Tensor
    value_NT: torch.Tensor | None = None
    memory: dict[str, Any] = field(default_factory=dict)

    @property
    def judged_N(self) -> torch.Tensor:
        """Whether a row has a verdict (N,)."""
        return ~torch.isnan(self.reward_N)

    @property
    def judged_NT(self) -> torch.Tensor:
        """The mask without the rows that have no verdict."""
        return self.mask_NT * self.judged_N[:, None]

    @property
    def penalised_N(self) -> torch.Tensor:
        """R − Σ penalty over the trained tokens (N,)."""
        return self.reward_N - (self.penalty_NT * self.mask_NT).sum(1).to(self.reward_N.dtype)

    @property
    def reward_NT(self) -> torch.Tensor:
        """−penalty on every trained token, and R on the last one; 0 in rows without a verdict."""
        out = -self.penalty_NT * self.judged_NT
        rows = torch.nonzero(self.judged_NT.sum(1) > 0)[:, 0]
        position = torch.arange(1, self.mask_NT.shape[1] + 1)
        last = (self.mask_NT * position).argmax(1)[rows]
        out[rows, last] += self.reward_N[rows].to(out.dtype)
        return out


@dataclass(frozen=True)
class Estimate:
    """Advantages (N,) or (N, T), and what the value head should predict (N, T) where there is one: NaN without a verdict."""

    advantage: torch.Tensor
    returns_NT: torch.Tensor | None = None


Estimator = Callable[[Outcome, AlgorithmSection], Estimate]


def _group_zscore(x: Outcome, a: AlgorithmSection) -> Estimate:
    return Estimate(groups.group_zscore(x.penalised_N, x.group_ids, eps=a.adv_eps, unbiased=a.std_unbiased))


def _batch_zscore(x: Outcome, a: AlgorithmSection) -> Estimate:
    return Estimate(groups.batch_zscore(x.penalised_N, x.group_ids, eps=a.adv_eps, unbiased=a.std_unbiased))


def _group_mean(x: Outcome, a: AlgorithmSection) -> Estimate:
    return Estimate(groups.group_mean(x.penalised_N, x.group_ids))


def _leave_one_out(x: Outcome, a: AlgorithmSection) -> Estimate:
    return Estimate(groups.leave_one_out(x.penalised_N, x.group_ids))


def _length_weighted(x: Outcome, a: AlgorithmSection) -> Estimate:
    return Estimate(groups.length_weighted(x.penalised_N, x.group_ids, x.mask_NT.sum(1)))


def _reinforce(x: Outcome, a: AlgorithmSection) -> Estimate:
    reward = x.penalised_N
    if a.baseline == "none":
        baseline = 0.0
    elif a.baseline == "batch":
        baseline = batch_mean(reward)
    else:
        baseline = moving_average(x.memory, reward, a.baseline_decay)
    return Estimate(reward_minus(reward, baseline))


def _whitened_return(x: Outcome, a: AlgorithmSection) -> Estimate:
    return Estimate(whiten(discounted_returns(x.reward_NT, x.judged_NT, a.gamma), x.judged_NT))


def _whitened_group_mean(x: Outcome, a: AlgorithmSection) -> Estimate:
    centred = groups.group_mean(x.penalised_N, x.group_ids)
    return Estimate(whiten(centred[:, None].expand(x.mask_NT.shape), x.judged_NT))


def _gae(x: Outcome, a: AlgorithmSection) -> Estimate:
    if x.value_NT is None:
        raise ValueError("advantage 'gae' needs values; found none")
    advantage, returns = gae(x.reward_NT, x.value_NT, x.judged_NT, gamma=a.gamma, lam=a.gae_lambda)
    known = torch.where(x.judged_N[:, None], returns, torch.nan)
    return Estimate(whiten(advantage, x.judged_NT), known)


ESTIMATORS: dict[str, Estimator] = {
    "group_zscore": _group_zscore,
    "batch_zscore": _batch_zscore,
    "group_mean": _group_mean,
    "leave_one_out": _leave_one_out,
    "length_weighted": _length_weighted,
    "reinforce": _reinforce,
    "whitened_return": _whitened_return,
    "whitened_group_mean": _whitened_group_mean,
    "gae": _gae,
}


def estimate(outcome: Outcome, trajectory_ids: Sequence[int], a: AlgorithmSection) -> Estimate:
    """The algorithm's estimate. Where trajectories come in several samples (rows with equal ``trajectory_ids``), each counts
    once, with all of its tokens in one row, and its advantage holds for all of its rows. Raises MethodError where there is
    no such advantage."""
    if len(set(trajectory_ids)) == len(trajectory_ids):
        return ESTIMATORS[a.advantage](outcome, a)
    if a.advantage in TOKEN_ADVANTAGES:
        raise MethodError(
            f"algorithm.advantage {a.advantage!r} credits tokens in their order, which the several samples of a trajectory "
            f"don't have; expected one of {', '.join(sorted(set(ESTIMATORS) - TOKEN_ADVANTAGES))}"
        )
    rows: dict[int, list[int]] = {}
    for row, trajectory in enumerate(trajectory_ids):
        rows.setdefault(trajectory, []).append(row)
    first = [found[0] for found in rows.values()]
    width = max(map(len, rows.values())) * outcome.mask_NT.shape[1]
    mask, penalty = torch.zeros(len(rows), width), torch.zeros(len(rows), width)
    for i, found in enumerate(rows.values()):
        for joined, part in ((mask, outcome.mask_NT), (penalty, outcome.penalty_NT)):
            flat = part[found].flatten()
            joined[i, : len(flat)] = flat
    ids = [outcome.group_ids[i] for i in first]
    value = ESTIMATORS[a.advantage](
        Outcome(outcome.reward_N[first], ids, mask, penalty, None, outcome.memory), a
    ).advantage
    place = {trajectory: i for i, trajectory in enumerate(rows)}
    return Estimate(value[[place[t] for t in trajectory_ids]])
