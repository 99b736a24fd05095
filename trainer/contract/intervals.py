"""Intervals as the comparison protocol demands: BCa over problems, t over seeds, crossings as intervals of k.

numpy is imported inside the functions, so that importing the contract stays light. One resampling matrix serves every
k and every arm on the same problems, which is what makes differences paired.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

from trainer.contract.passk import pass_at_k

if TYPE_CHECKING:
    import numpy as np

RESAMPLES = 2000
FEW_PROBLEMS = 100
TOO_FEW_PROBLEMS = 30

Note = Literal["", "few problems", "too few problems", "at the ceiling", "at the floor", "n too small", "no difference"]


@dataclass(frozen=True)
class Estimate:
    """A mean over problems with its 95 % interval. ``lo``/``hi`` None: no interval may be shown, ``note`` says why."""

    value: float
    lo: float | None
    hi: float | None
    problems: int
    note: Note = ""


@functools.lru_cache(maxsize=4)
def resampling_weights(problems: int, *, seed: int = 0, resamples: int = RESAMPLES) -> Any:
    """(resamples, problems) multinomial counts of a seeded bootstrap, read-only: one for all arms, which pairs them."""
    import numpy as np

    rng = np.random.default_rng(seed)
    draws = rng.integers(0, problems, size=(resamples, problems))
    weights = np.zeros((resamples, problems))
    np.add.at(weights, (np.arange(resamples)[:, None], draws), 1.0)
    weights.flags.writeable = False
    return weights


def bca(
    values: Sequence[float] | np.ndarray, *, weights: Any = None, confidence: float = 0.95, difference: bool = False
) -> Estimate:
    """Mean with its bias-corrected and accelerated bootstrap interval over problems (Efron 1987).

    ``values`` (P,) one per problem. Below 30 problems there is no interval, below 100 it is marked "few problems"; when
    every resample gives the same mean the interval would be a false certainty, so there is none and the note says so.
    ``difference``: the values are paired differences, for which 0 is no floor.
    """
    import numpy as np

    v = np.asarray(values, dtype=float)
    count = len(v)
    if count == 0:
        return Estimate(math.nan, None, None, 0, "too few problems")
    mean = float(v.mean())
    if count < TOO_FEW_PROBLEMS:
        return Estimate(mean, None, None, count, "too few problems")
    if float(np.ptp(v)) == 0.0:
        note: Note = "n too small"
        if mean == 0.0:
            note = "no difference" if difference else "at the floor"
        elif mean == 1.0 and not difference:
            note = "at the ceiling"
        return Estimate(mean, None, None, count, note)
    w = resampling_weights(count) if weights is None else weights
    boot = np.sort(w @ v / count)
    lo, hi = _bca_quantiles(v, boot, mean, confidence)
    return Estimate(mean, lo, hi, count, "few problems" if count < FEW_PROBLEMS else "")


def _bca_quantiles(v: np.ndarray, boot: np.ndarray, mean: float, confidence: float) -> tuple[float, float]:
    import numpy as np

    normal = NormalDist()
    z0, accel = _bca_constants(v, boot, mean)
    out = []
    for tail in ((1 - confidence) / 2, (1 + confidence) / 2):
        z = z0 + normal.inv_cdf(tail)
        out.append(float(np.quantile(boot, normal.cdf(z0 + z / (1 - accel * z)))))
    return out[0], out[1]


def _bca_constants(v: np.ndarray, boot: np.ndarray, mean: float) -> tuple[float, float]:
    """Bias correction z₀ and acceleration a of a sample mean."""
    import numpy as np

    below = (np.sum(boot < mean) + 0.5 * np.sum(boot == mean)) / len(boot)
    z0 = NormalDist().inv_cdf(min(max(float(below), 1e-6), 1 - 1e-6))
    centred = v - v.mean()
    spread = float(np.sum(centred**2))
    return z0, float(np.sum(centred**3)) / (6.0 * spread**1.5) if spread > 0 else 0.0


def bca_p_value(values: Sequence[float] | np.ndarray, *, weights: Any = None) -> float | None:
    """Two-sided p value of "the mean is 0" that belongs to `bca`: below .05 exactly when the 95 % interval leaves 0 out.

    It is the BCa interval inverted, and never below 1/resamples, which is what the bootstrap resolves. None where `bca`
    shows no interval.
    """
    import numpy as np

    v = np.asarray(values, dtype=float)
    if len(v) < TOO_FEW_PROBLEMS or float(np.ptp(v)) == 0.0:
        return None
    w = resampling_weights(len(v)) if weights is None else weights
    boot = w @ v / len(v)
    resolution = 1.0 / len(boot)
    # Resamples at exactly 0 speak against a difference: an interval that touches 0 does not leave it out.
    below = float(np.sum(boot <= 0) if v.mean() > 0 else np.sum(boot < 0)) * resolution
    if not resolution / 2 < below < 1 - resolution / 2:
        return resolution
    normal = NormalDist()
    z0, accel = _bca_constants(v, boot, float(v.mean()))
    shift = normal.inv_cdf(below) - z0
    tail = normal.cdf(shift / (1 + accel * shift) - z0)
    return float(min(1.0, max(resolution, 2 * min(tail, 1 - tail))))


def seed_p_value(per_seed: Sequence[float]) -> float | None:
    """Two-sided p value of "the mean over seeds is 0" by the t test of `seed_interval`; None for one seed, or when the
    seeds do not vary (then there is no spread to judge by).
    """
    s = len(per_seed)
    if s < 2 or max(per_seed) == min(per_seed):
        return None
    mean = math.fsum(per_seed) / s
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in per_seed) / (s - 1))
    return max(0.0, 2 * (1 - _t_cdf(abs(mean) * math.sqrt(s) / deviation, s - 1)))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's (1979) step-down adjusted p values, in order: with a level α on them, the chance of any false rejection is
    at most α. A None stays None and counts as a comparison all the same.
    """
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    out: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, i) in enumerate(known):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p))
        out[i] = highest
    return out


def pass_at_k_values(counts: Sequence[tuple[int, int]], k: int) -> list[float]:
    """Per-problem unbiased pass@k, in order."""
    return [pass_at_k(n, c, k) for n, c in counts]


def pass_at_k_interval(counts: Sequence[tuple[int, int]], k: int) -> Estimate:
    """pass@k of one run with its interval over problems."""
    return bca(pass_at_k_values(counts, k))


def seed_interval(per_seed: Sequence[float], *, confidence: float = 0.95) -> tuple[float, float, float] | None:
    """Mean and t interval (s − 1 degrees of freedom) over seeds; None for one seed: a single seed proves nothing."""
    s = len(per_seed)
    if s < 2:
        return None
    mean = math.fsum(per_seed) / s
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in per_seed) / (s - 1))
    half = t_quantile((1 + confidence) / 2, s - 1) * deviation / math.sqrt(s)
    return mean, mean - half, mean + half


def t_quantile(p: float, df: int) -> float:
    """Quantile of Student's t, by bisection on its exact distribution for integer degrees of freedom."""
    if not 0.5 <= p < 1:
        raise ValueError(f"t_quantile takes p in [.5, 1), found {p}")
    lo, hi = 0.0, 1e4
    for _ in range(200):
        mid = (lo + hi) / 2
        lo, hi = (mid, hi) if _t_cdf(mid, df) < p else (lo, mid)
    return (lo + hi) / 2


def _t_cdf(t: float, df: int) -> float:
    """P(T ≤ t) for t ≥ 0 by the finite trigonometric series (Abramowitz & Stegun 26.7.3–4)."""
    theta = math.atan2(t, math.sqrt(df))
    cos, sin = math.cos(theta), math.sin(theta)
    if df % 2:
        term, total = cos, cos if df > 1 else 0.0
        for i in range(3, df - 1, 2):
            term *= cos * cos * (i - 1) / i
            total += term
        area = 2 / math.pi * (theta + sin * total)
    else:
        term, total = 1.0, 1.0
        for i in range(2, df - 1, 2):
            term *= cos * cos * (i - 1) / i
            total += term
        area = sin * total
    return 0.5 + area / 2


FEW_SEEDS = 5
"""From this many seeds on, seeds and problems are resampled; below, the seeds' own spread is all there is (t interval)."""


@dataclass(frozen=True)
class SeedEstimate:
    """A mean over seeds and problems with its 95 % interval and the two-sided p value of "it is 0".

    ``lo``/``hi`` None: no interval may be shown, ``note`` says why. ``per_seed``: the mean of each seed.
    """

    value: float
    lo: float | None
    hi: float | None
    p: float | None
    seeds: int
    problems: int
    per_seed: tuple[float, ...]
    note: str = ""


def over_seeds(values_SP: Sequence[Sequence[float]]) -> SeedEstimate:
    """Mean of values (S seeds, P problems), the problems shared by all seeds and in one order."""
    import numpy as np

    v = np.asarray(values_SP, dtype=float)
    if v.ndim != 2 or not v.size:
        return SeedEstimate(math.nan, None, None, None, len(v), 0, (), "nothing measured")
    weights = resampling_weights(v.shape[1])
    return over_resampled(v.mean(axis=1).tolist(), lambda: v @ weights.T / v.shape[1], problems=v.shape[1])


def over_resampled(
    per_seed: Sequence[float], resampled_SR: Callable[[], Any] | None, *, problems: int = 0
) -> SeedEstimate:
    """Like `over_seeds` for any statistic: its value for each seed, and for each seed under every resample of problems
    (the same resamples for all seeds and arms); None where a seed's value is not a mean over problems.

    Up to four seeds: t interval over seeds, s − 1 degrees of freedom. From five: the hierarchical bootstrap (seeds drawn
    first, then problems), but never narrower than the t interval, because resampling few seeds understates their spread
    (five seeds without noise from problems: it covers .83 instead of .95). One seed has no interval: it is a curve.
    """
    import numpy as np

    s = len(per_seed)
    mean = math.fsum(per_seed) / s if s else math.nan
    made = functools.partial(SeedEstimate, seeds=s, problems=problems, per_seed=tuple(per_seed))
    if s < 2:
        return made(mean, None, None, None, note="one seed" if s else "nothing measured")
    if max(per_seed) == min(per_seed):
        return made(mean, None, None, None, note="no difference" if mean == 0 else "the seeds do not vary")
    by_seed, p = seed_interval(per_seed), seed_p_value(per_seed)
    assert by_seed is not None
    assert p is not None
    _, lo, hi = by_seed
    if s < FEW_SEEDS or resampled_SR is None:
        return made(mean, lo, hi, p)
    if problems < TOO_FEW_PROBLEMS:
        return made(mean, None, None, None, note="too few problems")
    boot_SR = np.asarray(resampled_SR(), dtype=float)
    resamples = boot_SR.shape[1]
    drawn_RS = np.random.default_rng(1).integers(0, s, size=(resamples, s))
    boot = boot_SR[drawn_RS, np.arange(resamples)[:, None]].mean(axis=1)
    low, high = (float(x) for x in np.quantile(boot, [0.025, 0.975]))
    tail = 2 * min(float((boot <= 0).mean()), float((boot >= 0).mean()))
    note = "few problems" if problems < FEW_PROBLEMS else ""
    return made(mean, min(lo, low), max(hi, high), min(1.0, max(p, tail, 1 / resamples)), note=note)


@dataclass(frozen=True)
class Crossing:
    """Where curve A goes from above to below curve B (or back): k with its interval, or not resolved."""

    resolved: bool
    k: float | None = None
    lo: float | None = None
    hi: float | None = None
    a_above_before: bool = True


def crossing(a: Sequence[tuple[int, int]], b: Sequence[tuple[int, int]], ks: Sequence[int]) -> Crossing | None:
    """The crossing of two pass@k curves over the same problems in the same order; None where one curve lies above the other
    at every k in at least 95 % of the resamples, or both are the same. Estimates that cross more than once, or that keep
    their order without the resamples bearing it out, are not resolved.

    Bootstrap over problems, the same resamples for both. The k of a resample is interpolated on log₂ k. A crossing is
    resolved when at least 95 % of the resamples cross in the same direction exactly once; its interval is the central
    95 % of those k. Otherwise it is reported as not resolved.
    """
    import numpy as np

    if len(a) != len(b):
        raise ValueError(f"crossing needs the same problems in both curves, found {len(a)} and {len(b)}")
    diff = np.array([[x - y for x, y in zip(pass_at_k_values(a, k), pass_at_k_values(b, k), strict=True)] for k in ks])
    log_k = [math.log2(k) for k in ks]
    means = diff.mean(axis=1).tolist()
    point = _single_crossing(means, log_k)
    if not diff.any():
        return None
    above = point[1] if point is not None else next(x > 0 for x in (*means, 1.0) if x != 0)
    if len(a) < TOO_FEW_PROBLEMS:
        return Crossing(False, a_above_before=above)
    boot = diff @ resampling_weights(len(a)).T / len(a)
    if point is None:
        apart = (boot >= 0).all(axis=0) if above else (boot <= 0).all(axis=0)
        return None if float((apart & boot.any(axis=0)).mean()) >= 0.95 else Crossing(False, a_above_before=above)
    k0 = point[0]
    found = [_single_crossing(one, log_k) for one in boot.T.tolist()]
    same = [f[0] for f in found if f is not None and f[1] == above]
    if len(same) < 0.95 * len(found):
        return Crossing(False, a_above_before=above)
    lo, hi = np.quantile(same, [0.025, 0.975])
    return Crossing(True, 2**k0, float(2**lo), float(2**hi), above)


def _single_crossing(diff: Sequence[float], log_k: Sequence[float]) -> tuple[float, bool] | None:
    """(log₂ k, A above before) of the only sign change; None without one or with several. Zeros are passed over."""
    found: tuple[float, bool] | None = None
    last = -1
    for i, value in enumerate(diff):
        if value == 0:
            continue
        if last >= 0 and (diff[last] < 0) != (value < 0):
            if found is not None:
                return None
            share = diff[last] / (diff[last] - value)
            found = log_k[last] + share * (log_k[i] - log_k[last]), diff[last] > 0
        last = i
    return found
