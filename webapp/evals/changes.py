"""Which problems were gained or lost between two evaluations, next to what resampling alone would show.

A plain "solved then, not now" also happens to an unchanged model, because c is a draw. So each problem is tested
(Fisher's exact test on its two counts), the tests are corrected together (Benjamini–Hochberg at 10 %), and beside the
plain counts stands the number expected if both evaluations had drawn from one unchanged policy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from webapp.evals.curves import shared
from webapp.evals.models import Evaluation

LEVEL = 0.1


@dataclass(frozen=True)
class Change:
    """One problem: (n, c) at the start and now, its two-sided p value, and whether it stands after the correction."""

    uid: str
    start: tuple[int, int]
    now: tuple[int, int]
    p: float
    significant: bool

    @property
    def gained(self) -> bool:
        return self.now[1] * self.start[0] > self.start[1] * self.now[0]


@dataclass(frozen=True)
class Changes:
    """Plain counts (solved at one end, never at the other) with their expectation under no change, and the problems
    whose change is significant.
    """

    problems: int
    gained: int
    lost: int
    never: int
    expected_gained: float
    expected_lost: float
    significant: Sequence[Change]


def fisher(a: tuple[int, int], b: tuple[int, int]) -> float:
    """Two-sided p value of Fisher's exact test for c of n in two samples; each is (n, c)."""
    (n, c), (m, d) = a, b
    total = c + d
    low, high = max(0, total - m), min(n, total)
    weights = [math.comb(n, k) * math.comb(m, total - k) for k in range(low, high + 1)]
    seen = weights[c - low]
    return min(1.0, sum(w for w in weights if w <= seen) / sum(weights))


def benjamini_hochberg(p_values: Sequence[float], level: float = LEVEL) -> list[bool]:
    """For each p value whether it is rejected when the share of false rejections is held at `level`."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    last = 0
    for rank, i in enumerate(order, 1):
        if p_values[i] <= level * rank / len(p_values):
            last = rank
    rejected = set(order[:last])
    return [i in rejected for i in range(len(p_values))]


def expected_one_sided(start: Sequence[tuple[int, int]], now: Sequence[tuple[int, int]]) -> float:
    """How many problems an unchanged policy solves in the first draw and not in the second, on average.

    Each problem's success probability is estimated from both draws together: Σ (1 − (1 − p)^n₁)·(1 − p)^n₂.
    """
    out = 0.0
    for (n, c), (m, d) in zip(start, now, strict=True):
        q = 1.0 - (c + d) / (n + m)
        out += (1.0 - q**n) * q**m
    return out


def changes_between(start: Evaluation, now: Evaluation) -> Changes | None:
    """The changes on the problems that both share; None when they share none."""
    uids = shared(now, start)
    if not uids:
        return None
    before, after = ([(e.by_uid[uid]["n"], e.by_uid[uid]["c"]) for uid in uids] for e in (start, now))
    p_values = [fisher(a, b) for a, b in zip(before, after, strict=True)]
    rejected = benjamini_hochberg(p_values)
    rows = [
        Change(uid, a, b, p, hit) for uid, a, b, p, hit in zip(uids, before, after, p_values, rejected, strict=True)
    ]
    return Changes(
        problems=len(uids),
        gained=sum(a[1] == 0 < b[1] for a, b in zip(before, after, strict=True)),
        lost=sum(b[1] == 0 < a[1] for a, b in zip(before, after, strict=True)),
        never=sum(a[1] == 0 == b[1] for a, b in zip(before, after, strict=True)),
        expected_gained=expected_one_sided(after, before),
        expected_lost=expected_one_sided(before, after),
        significant=sorted((row for row in rows if row.significant), key=lambda row: row.p),
    )
