"""How probability is spread over solutions and answers, as pure functions of counts and log-probs. Natural logarithms.

Counts n_a are of the classes a of one problem's n samples. Log-probs l are of *distinct* sampled trajectories under the
distribution that they were sampled from. What is undefined is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from trainer.contract.events import ProblemResult
from trainer.contract.passk import pass_at_k
from trainer.core.types import Group

OTHER = "__other__"
"""The class of all answers beyond the most frequent ones."""
_EULER = 0.5772156649015329
COVERED = 0.8
"""From this Good–Turing coverage on the bias of `answer_entropy` is small enough to show it."""


def digamma(m: int) -> float:
    """ψ at a positive integer."""
    return -_EULER + math.fsum(1 / j for j in range(1, m))


def coverage(counts: Sequence[int]) -> float:
    """Good–Turing estimate of the mass of the classes seen, 1 − f₁/n; NaN without samples."""
    n = sum(counts)
    return 1 - sum(c == 1 for c in counts) / n if n else math.nan


def answer_entropy(counts: Sequence[int]) -> float:
    """Σ n_a/n·(ψ(n) − ψ(n_a)): entropy with most of the bias taken off. May exceed ln n. NaN without samples."""
    n = sum(counts)
    if not n:
        return math.nan
    return math.fsum(c / n * (digamma(n) - digamma(c)) for c in counts if c)


def top_mass(logprobs: Sequence[float], m: int) -> float:
    """Mass of the m likeliest of the distinct trajectories: at most that of the m likeliest of all. NaN of none."""
    return math.fsum(math.exp(x) for x in sorted(logprobs, reverse=True)[:m]) if logprobs else math.nan


def unseen_mass(logprobs: Sequence[float]) -> float:
    """Mass that none of the distinct trajectories has, 1 − Σ exp(l), exact. NaN of none."""
    return 1 - math.fsum(math.exp(x) for x in logprobs) if logprobs else math.nan


def group_shares(logprobs: Sequence[float]) -> list[float]:
    """Softmax over the distinct trajectories of one group."""
    if not logprobs:
        return []
    top = max(logprobs)
    raw = [math.exp(x - top) for x in logprobs]
    return [x / math.fsum(raw) for x in raw]


def effective(shares: Sequence[float], order: int = 2) -> float:
    """Effective number of a distribution: 1/Σp² (order 2) or exp of the entropy (order 1). NaN of none."""
    if not shares:
        return math.nan
    if order == 1:
        return math.exp(-math.fsum(p * math.log(p) for p in shares if p > 0))
    return 1 / math.fsum(p * p for p in shares)


def covering(shares: Sequence[float], mass: float = 0.9) -> int:
    """Fewest members of a known distribution that hold the mass."""
    total = 0.0
    for i, p in enumerate(sorted(shares, reverse=True), 1):
        total += p
        if total >= mass - 1e-12:
            return i
    return len(shares)


def gini(shares: Sequence[float]) -> float:
    """Inequality over a known support: 0 uniform, (S − 1)/S one-hot. NaN of none."""
    size = len(shares)
    ordered = sorted(shares)
    return math.fsum((2 * i - size - 1) * p for i, p in enumerate(ordered, 1)) / size if size else math.nan


@dataclass(frozen=True)
class Ceiling:
    """Shares of problems solved at least once: in this evaluation, in any so far, and in an earlier one but not in this; and
    what the last would be by resampling alone, had the model never changed."""

    now: float
    ever: float
    forgotten: float
    forgotten_null: float


def ceiling(problems: Sequence[tuple[int, int, int, int]]) -> Ceiling:
    """From (n, c) of this evaluation and (N, C) of all evaluations together with it, for each problem.

    The null is exact: in a model that never changed, the C right samples lie anywhere among the N, so that none of them is
    in this evaluation with the probability 1 − pass@n of (N, C).
    """
    if not problems:
        return Ceiling(math.nan, math.nan, math.nan, math.nan)
    size = len(problems)
    now, ever = sum(c > 0 for _, c, _, _ in problems) / size, sum(right > 0 for *_, right in problems) / size
    null = math.fsum(1 - pass_at_k(total, right, n) for n, _, total, right in problems if right) / size
    return Ceiling(now, ever, ever - now, null)


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """How concentrated an iteration's rollouts are, trajectory by trajectory, each prompt with weight 1. Over distinct id
    sequences and under the sampling distribution; a truncated rollout has the mass of its prefix."""
    top1, top5, unseen, collision, surprise, spread = ([] for _ in range(6))
    for group in groups:
        drawn = [
            (tuple(i for s in spans for i in s.ids), math.fsum(lp for s in spans for lp in s.logprobs or ()))
            for spans in ([s for s in t.spans() if s.sampled] for t in group.trajectories)
            if spans
        ]
        if not drawn:
            continue
        distinct = list(dict(drawn).values())
        top1.append(top_mass(distinct, 1))
        top5.append(top_mass(distinct, 5))
        unseen.append(unseen_mass(distinct))
        collision.append(math.fsum(math.exp(lp) for _, lp in drawn) / len(drawn))
        surprise.append(-math.fsum(lp for _, lp in drawn) / len(drawn))
        spread.append(effective(group_shares(distinct)) / len(distinct))
    if not top1:
        return {}
    out = {
        "squeeze/top1_mass": mean(top1),
        "squeeze/top5_mass": mean(top5),
        "squeeze/unseen_mass": mean(unseen),
        "squeeze/log_n1": mean(surprise),
        "squeeze/neff_group": mean(spread),
    }
    # Long responses have probabilities that underflow; then there is no estimate.
    return out | ({"squeeze/neff": 1 / mean(collision)} if mean(collision) > 0 else {})


def evaluation_metrics(problems: Sequence[ProblemResult]) -> dict[str, float]:
    """How an evaluation's answers are spread, each problem with weight 1. The entropy is of problems whose answers were all
    counted and are covered well enough; how many these are is the share beside it."""
    wrong, entropies, covered = [], [], []
    for p in problems:
        if not p.n:
            continue
        wrong.append(max((a.count for a in p.answers if not a.correct and a.key != OTHER), default=0) / p.n)
        if any(a.key == OTHER for a in p.answers):
            continue
        counts = [a.count for a in p.answers]
        covered.append(coverage(counts))
        if covered[-1] >= COVERED:
            entropies.append(answer_entropy(counts))
    out = {"squeeze/mass_wrong_top": mean(wrong)} if wrong else {}
    if covered:
        out |= {"squeeze/answer_coverage": mean(covered), "squeeze/answer_problems": len(entropies) / len(problems)}
    return out | ({"squeeze/answer_entropy": mean(entropies)} if entropies else {})
