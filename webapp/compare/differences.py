"""Differences to a reference, crossings and effective numbers, each with what it may be called.

Two runs are compared over problems, and the result is about these two sets of weights. Only several seeds on both sides
(or against the fixed base) say something about methods; then the seeds are the units.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.contract.intervals import Crossing, bca_p_value, holm, pass_at_k_values, seed_interval, seed_p_value
from webapp.compare.query import TABLE_KS
from webapp.compare.selectors import Comparison, Line, Value, over_seeds
from webapp.evals import curves
from webapp.evals.models import Evaluation

LEVEL = 0.05
ALL_PAIRS_UP_TO = 4


@dataclass
class Difference:
    """pass@k of a line minus that of the reference. `p` is adjusted by Holm over all differences of the page."""

    k: int
    value: Value
    raw_p: float | None
    p: float | None = None

    @property
    def verdict(self) -> str:
        if self.value.value is None:
            return ""
        if self.value.lo is None or self.value.hi is None:
            return "not resolved"
        if self.p is None or self.p >= LEVEL:
            return "not resolved"
        return "higher" if self.value.value > 0 else "lower"


@dataclass
class DifferenceRow:
    """All differences of one line. `seeds` is the number of seed pairs; 1 means: of two runs, over problems."""

    line: Line
    seeds: int
    problems: int
    cells: list[Difference]


def difference_rows(comparison: Comparison, reference: Line, ks: Sequence[int] = TABLE_KS) -> list[DifferenceRow]:
    """Each other line against the reference, paired by problem and, where there are seeds, by seed."""
    rows = []
    for line in comparison.all_lines:
        if line is reference or line.is_base:
            continue
        pairs = _pairs(line, reference)
        cells = [_difference(pairs, line, reference, k) for k in ks]
        problems = min((len(curves.shared(a, b)) for a, b in pairs), default=0)
        rows.append(DifferenceRow(line, len(pairs), problems, cells))
    cells = [cell for row in rows for cell in row.cells if cell.value.value is not None]
    for cell, p in zip(cells, holm([cell.raw_p for cell in cells]), strict=True):
        cell.p = p
    return rows


def _pairs(line: Line, reference: Line) -> list[tuple[Evaluation, Evaluation]]:
    """Evaluations to hold against each other: of equal seeds, or each against the one base."""
    if reference.is_base:
        return [(evaluation, reference.first) for evaluation in line.evaluations]
    if line.seeds == 1 and reference.seeds == 1:
        return [(line.first, reference.first)]
    by_seed = {run.seed: evaluation for run, evaluation in zip(reference.runs, reference.evaluations, strict=True)}
    return [
        (evaluation, by_seed[run.seed])
        for run, evaluation in zip(line.runs, line.evaluations, strict=True)
        if run.seed in by_seed
    ]


def _difference(pairs: list[tuple[Evaluation, Evaluation]], line: Line, reference: Line, k: int) -> Difference:
    if not pairs:
        return Difference(k, Value(None, reason="No two runs with the same seed to pair"), None)
    found = [curves.difference(a, b, k) for a, b in pairs]
    if any(one is None for one in found):
        return Difference(k, Value(None, reason=f"Too few samples a problem for pass@{k}"), None)
    if not curves.shared(*pairs[0]):
        return Difference(k, Value(None, reason="The two evaluations share no problem"), None)
    if len(pairs) > 1:
        return Difference(k, over_seeds(found), seed_p_value([one.value for one in found if one is not None]))
    value = Value.of(found[0])
    if line.seeds > 1 or reference.seeds > 1:
        # A mean over seeds against one run: the one run's own spread is unknown.
        return Difference(k, Value(value.value, note="one pair of seeds"), None)
    return Difference(k, value, _p_over_problems(*pairs[0], k))


def _p_over_problems(a: Evaluation, b: Evaluation, k: int) -> float | None:
    left, right = (pass_at_k_values(pairs, k) for pairs in curves.paired_pairs(a, b))
    return bca_p_value([x - y for x, y in zip(left, right, strict=True)])


# Crossings


@dataclass(frozen=True)
class CrossingRow:
    """Where the curve of `a` meets that of `b`, as a sentence."""

    a: Line
    b: Line
    sentence: str
    resolved: bool


def crossing_rows(comparison: Comparison, reference: Line | None) -> list[CrossingRow]:
    """All pairs of up to four curves; of more, each against the base and the reference."""
    lines = comparison.all_lines
    pairs = [(a, b) for i, b in enumerate(lines) for a in lines[i + 1 :]]
    if len(lines) > ALL_PAIRS_UP_TO:
        pairs = [(a, b) for a, b in pairs if b.is_base or reference in (a, b)]
    rows = [_crossing(a, b) for a, b in pairs if not (a.is_base and b.is_base)]
    return [row for row in rows if row is not None]


def _crossing(a: Line, b: Line) -> CrossingRow | None:
    pairs = [pair for pair in _pairs(a, b) if curves.shared(*pair)]
    if not pairs:
        return None
    found = [curves.crossing_of(*pair) for pair in pairs]
    last = min(min(x.samples, y.samples) for x, y in pairs)
    over = f" on {len(pairs)} seeds" if len(pairs) > 1 else ""
    if all(one is None for one in found):
        return CrossingRow(a, b, f"{a.name} and {b.name} do not cross up to k = {last}{over}", True)
    resolved = _one_place(found)
    if resolved is None:
        return CrossingRow(a, b, f"{a.name} and {b.name}: crossing not resolved{over}", False)
    k, lo, hi, above = resolved
    side = "below" if above else "above"
    return CrossingRow(a, b, f"{a.name} {side} {b.name} from k = {k:.3g} [{lo:.3g}, {hi:.3g}]{over}", True)


def _one_place(found: Sequence[Crossing | None]) -> tuple[float, float, float, bool] | None:
    """(k, lo, hi, a was above before) when all pairs cross once in the same direction; over seeds by t on log₂ k."""
    known = [one for one in found if one is not None and one.resolved and one.k is not None]
    if len(known) != len(found) or len({one.a_above_before for one in known}) != 1:
        return None
    first = known[0]
    if len(known) == 1:
        assert first.k is not None
        assert first.lo is not None
        assert first.hi is not None
        return first.k, first.lo, first.hi, first.a_above_before
    interval = seed_interval([math.log2(one.k) for one in known if one.k is not None])
    assert interval is not None
    k, lo, hi = (2**x for x in interval)
    return k, lo, hi, first.a_above_before


# Effective number of correct trajectories


@dataclass(frozen=True)
class EffectiveRow:
    """Within-correct effective numbers now and at the start, on the problems with c ≥ 2 at both."""

    line: Line
    now: Value
    start: Value
    problems: int
    verdict: str


def effective_rows(comparison: Comparison) -> list[EffectiveRow]:
    """One row a run; runs without a start on the same set, or without such problems, are left out."""
    out = []
    for line in comparison.lines:
        for member in line.members or [line]:
            if member.start is None or member.start.pk == member.first.pk:
                continue
            numbers = curves.effective(member.first, member.start)
            if numbers is None:
                continue
            rise = numbers.rise
            if rise.lo is None or rise.hi is None:
                verdict = f"not resolved: {rise.note}"
            elif rise.lo > 0:
                verdict = "fell"
            else:
                verdict = "rose" if rise.hi < 0 else "not resolved"
            out.append(
                EffectiveRow(
                    member, _finite(Value.of(numbers.now)), _finite(Value.of(numbers.start)), numbers.problems, verdict
                )
            )
    return out


def _finite(value: Value) -> Value:
    """An infinite effective number (no two correct answers were alike) has no honest figure."""
    if value.value is not None and math.isinf(value.value):
        return Value(None, note=value.note, reason="No two correct answers to a problem were alike: no upper bound")
    return value
