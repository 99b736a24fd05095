"""Curves over k and over iterations, effective numbers, and paired differences, from stored counts.

Everything here is a function of stored counts alone, so results are kept in Django's cache under the counts' digest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from django.core.cache import cache

from trainer.contract.intervals import Crossing, Estimate, bca, crossing, pass_at_k_values, resampling_weights
from trainer.contract.passk import chance_pass_at_k, collision_mass, effective_number, homogeneity_bound, k_grid
from webapp.evals.models import Evaluation, EvaluationSet

KEPT_SECONDS = 7 * 24 * 3600
VERSION = 3  # of the formulas: another number forgets what is cached
T = TypeVar("T")


@dataclass(frozen=True)
class Curve:
    """pass@k of one evaluation over `ks`; `chance` on the same ks, None where the task gives no chance."""

    ks: list[int]
    estimates: list[Estimate]
    chance: list[float] | None

    def at(self, k: int) -> Estimate | None:
        return self.estimates[self.ks.index(k)] if k in self.ks else None


@dataclass(frozen=True)
class Effective:
    """Effective number of correct trajectories now and at the start, on the problems with c ≥ 2 at both.

    `rise` is the paired change of the collision mass Σp² with its interval: above 0, the effective number has fallen.
    """

    now: Estimate
    start: Estimate
    rise: Estimate

    @property
    def problems(self) -> int:
        return self.now.problems

    @property
    def falls(self) -> bool:
        return self.rise.lo is not None and self.rise.lo > 0


def _kept(name: str, evaluations: Sequence[Evaluation], compute: Callable[[], T]) -> T:
    rows = ":".join(e.digest for e in evaluations)
    return cache.get_or_set(f"evals:{VERSION}:{name}:{rows}", compute, KEPT_SECONDS)  # type: ignore[return-value]


@lru_cache(maxsize=4)
def _weights(problems: int) -> Any:
    return resampling_weights(problems)


def interval(values: Sequence[float], *, difference: bool = False) -> Estimate:
    """BCa over problems; the resamples are the same wherever the number of problems is."""
    return bca(values, weights=_weights(len(values)) if values else None, difference=difference)


def pass_at(evaluation: Evaluation, k: int) -> Estimate | None:
    """pass@k with its interval over problems; None when k is larger than some problem's n."""
    if not 1 <= k <= evaluation.samples:
        return None
    return _kept(f"pass@{k}", [evaluation], lambda: interval(pass_at_k_values(evaluation.pairs, k)))


def curve(evaluation: Evaluation) -> Curve:
    """pass@k at the powers of two up to n."""
    ks = k_grid(evaluation.samples) if evaluation.samples else []
    estimates = [estimate for k in ks if (estimate := pass_at(evaluation, k)) is not None]
    return Curve(ks, estimates, chance_curve(evaluation.set, ks))


def chance_curve(evaluation_set: EvaluationSet, ks: Sequence[int]) -> list[float] | None:
    """What guessing in the right format reaches; None unless every problem has its chance."""
    chances = [problem.get("chance") for problem in evaluation_set.problems]
    if not chances or any(chance is None for chance in chances):
        return None
    return [chance_pass_at_k(chances, k) for k in ks]


def bound(found: Curve) -> list[float]:
    """What pass@k could be at most at the curve's pass@1, at its ks: that of problems which are all equally hard."""
    return [homogeneity_bound(found.estimates[0].value, k) for k in found.ks]


def shared(a: Evaluation, b: Evaluation) -> list[str]:
    """Uids of the problems in both, in the first's order: what pairs them."""
    return [uid for uid in a.counts["uid"] if uid in b.by_uid]


def paired_pairs(a: Evaluation, b: Evaluation) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(n, c) of both on their shared problems, in one order."""
    uids = shared(a, b)
    left, right = ([(e.by_uid[uid]["n"], e.by_uid[uid]["c"]) for uid in uids] for e in (a, b))
    return left, right


def difference(now: Evaluation, start: Evaluation, k: int) -> Estimate | None:
    """pass@k of `now` minus that of `start`, paired by problem; None where k is too large for either."""
    if not 1 <= k <= min(now.samples, start.samples):
        return None

    def compute() -> Estimate:
        left, right = (pass_at_k_values(pairs, k) for pairs in paired_pairs(now, start))
        return interval([x - y for x, y in zip(left, right, strict=True)], difference=True)

    return _kept(f"difference@{k}", [now, start], compute)


def crossing_of(a: Evaluation, b: Evaluation) -> Crossing | None:
    """Where the two pass@k curves cross, on shared problems; None when the estimates don't."""

    def compute() -> tuple[Crossing | None]:
        left, right = paired_pairs(a, b)
        ks = k_grid(min(a.samples, b.samples))
        return (crossing(left, right, ks) if left and len(ks) > 1 else None,)

    return _kept("crossing", [a, b], compute)[0]


def effective(now: Evaluation, start: Evaluation) -> Effective | None:
    """Within-correct effective numbers on the problems with c ≥ 2 at both; None when there is no such problem.

    The mean collision mass has a BCa interval over problems; the effective number is its reciprocal, and BCa
    intervals follow monotone maps. A mass of zero (no pair ever collided) has no finite reciprocal: the value is then
    infinite, the upper end missing.
    """

    def compute() -> tuple[Effective | None]:
        uids = [uid for uid in shared(now, start) if min(now.by_uid[uid]["c"], start.by_uid[uid]["c"]) >= 2]
        if not uids:
            return (None,)
        forms = [[e.by_uid[uid]["forms"] for uid in uids] for e in (now, start)]
        masses = [[collision_mass(counts) for counts in side] for side in forms]
        numbers = [
            _reciprocal(interval(mass), effective_number(side)[0]) for mass, side in zip(masses, forms, strict=True)
        ]
        rise = interval([x - y for x, y in zip(*masses, strict=True)], difference=True)
        return (Effective(now=numbers[0], start=numbers[1], rise=rise),)

    return _kept("effective", [now, start], compute)[0]


def _reciprocal(mass: Estimate, value: float) -> Estimate:
    if mass.lo is None or mass.hi is None:
        return Estimate(value, None, None, mass.problems, mass.note)
    lo = 1 / mass.hi if mass.hi > 0 else None
    hi = 1 / mass.lo if mass.lo > 0 else None
    return Estimate(value, lo, hi, mass.problems, mass.note)
