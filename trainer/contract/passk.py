"""pass@k and its companions, in plain Python: the formulas stand here once."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence


@functools.lru_cache(maxsize=1 << 16)
def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased estimate of 1 − (1 − p)^k from c correct among n samples: 1 − C(n−c, k)/C(n, k).

    Source: Chen et al. 2021, arXiv 2107.03374, eq. 1, in the product form 1 − Π_{j=n−c+1..n} (1 − k/j).
    Raises ValueError when k > n (no unbiased estimator exists) and when the counts are impossible.
    """
    if not 0 <= c <= n:
        raise ValueError(f"pass@k: c = {c} correct of n = {n} samples is impossible")
    if k < 1 or k > n:
        raise ValueError(f"pass@{k} has no unbiased estimator from n = {n} samples; sample at least k")
    if n - c < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / j for j in range(n - c + 1, n + 1))


def mean_pass_at_k(counts: Sequence[tuple[int, int]], k: int) -> float:
    """Mean over problems of pass@k; ``counts`` holds (n, c). NaN without problems; raises if any n < k."""
    return math.fsum(pass_at_k(n, c, k) for n, c in counts) / len(counts) if counts else math.nan


def chance_pass_at_k(probabilities: Sequence[float], k: int) -> float:
    """Mean over problems of 1 − (1 − p)^k for known success probabilities (the chance line). NaN without problems."""
    return math.fsum(1.0 - (1.0 - p) ** k for p in probabilities) / len(probabilities) if probabilities else math.nan


def k_grid(n: int) -> list[int]:
    """Powers of two up to n: the k at which curves are drawn."""
    return [2**i for i in range(n.bit_length()) if 2**i <= n]


def homogeneity_bound(pass1: float, k: int) -> float:
    """1 − (1 − pass@1)^k: no pass@k can exceed it (Jensen), equality iff all problems share one p."""
    return 1.0 - (1.0 - pass1) ** k


def kappa(pass1: float, passk: float, k: int) -> float:
    """Share of the resampling headroom left, (pass@k − pass@1)/(bound − pass@1); NaN if k = 1 or pass@1 ∈ {0, 1}."""
    if k == 1 or pass1 in (0.0, 1.0):
        return math.nan
    return (passk - pass1) / (homogeneity_bound(pass1, k) - pass1)


def cover_at(counts: Sequence[tuple[int, int]], threshold: float) -> float:
    """cover@τ: share of problems whose estimated success probability c/n is at least τ. NaN without problems."""
    return sum(c / n >= threshold for n, c in counts) / len(counts) if counts else math.nan


def collision_mass(counts: Sequence[int]) -> float:
    """Unbiased Σp² from counts of distinct forms: Σ n_a(n_a−1)/(n(n−1)). NaN for fewer than two draws."""
    n = sum(counts)
    return sum(a * (a - 1) for a in counts) / (n * (n - 1)) if n >= 2 else math.nan


def effective_lower_bound(n: int) -> float:
    """95 % lower bound of the effective number when n draws showed no collision.

    The smallest N for which n draws from N equally likely forms stay distinct with probability at least .05
    (n = 8: 13). NaN for fewer than two draws.
    """
    if n < 2:
        return math.nan
    size = n
    while math.prod(1.0 - i / size for i in range(1, n)) < 0.05:
        size += 1
    return float(size)


def effective_number(per_problem: Sequence[Sequence[int]]) -> tuple[float, int]:
    """Effective number of correct trajectories over a fixed set of problems: 1 / mean Σp², and the problems used.

    Each entry holds the counts of distinct canonical forms among one problem's correct samples (at least two samples;
    others raise). The collision mass is a U-statistic, so unequal counts don't bias it. ∞ when no pair ever collided.
    """
    if not per_problem:
        return math.nan, 0
    if any(sum(c) < 2 for c in per_problem):
        raise ValueError("effective_number needs two correct samples a problem; drop the others first")
    mean = math.fsum(collision_mass(c) for c in per_problem) / len(per_problem)
    return (1.0 / mean if mean > 0 else math.inf), len(per_problem)
