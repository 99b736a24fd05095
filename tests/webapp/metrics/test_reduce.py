"""The reduction never loses a spike, an end or a NaN, and always gives the same picture."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webapp.metrics.reduce import Reading, reduce

values = st.one_of(
    st.tuples(st.floats(-1e6, 1e6), st.just(0)), st.tuples(st.none(), st.sampled_from([1, 2, 3]))
)  # fmt: skip
series = st.lists(st.tuples(st.integers(1, 5), values), min_size=1, max_size=400)


def readings(steps: list[tuple[int, tuple[float | None, int]]]) -> list[Reading]:
    at, out = 0, []
    for gap, (value, kind) in steps:
        at += gap
        out.append((at, value, kind))
    return out


@given(series, st.integers(4, 60))
@settings(max_examples=100, deadline=None)
def test_ends_extremes_and_kinds_are_kept(steps: list[tuple[int, tuple[float | None, int]]], most: int) -> None:
    points = readings(steps)
    kept = reduce(points, most)
    finite = [p for p in points if p[1] is not None]
    assert [p for p in points if p in set(kept)] == list(kept), "an ordered subsequence"
    assert sum(p[1] is not None for p in kept) <= max(most, 4)
    assert {p[2] for p in points} <= {p[2] for p in kept}
    if finite:
        seen = [p[1] for p in kept if p[1] is not None]
        assert min(seen) == min(p[1] for p in finite if p[1] is not None)
        assert max(seen) == max(p[1] for p in finite if p[1] is not None)
        assert finite[0] in kept
        assert finite[-1] in kept


@given(st.integers(0, 2_999), st.sampled_from([100.0, -100.0]))
@settings(max_examples=15, deadline=None)
def test_a_single_spike_is_kept(at: int, height: float) -> None:
    points = [(i, height if i == at else 0.0, 0) for i in range(3_000)]
    assert (at, height, 0) in reduce(points, 200)


@given(st.integers(0, 2_999), st.sampled_from([1, 2, 3]))
@settings(max_examples=15, deadline=None)
def test_a_single_nan_is_kept(at: int, kind: int) -> None:
    points = [(i, None, kind) if i == at else (i, float(i % 7), 0) for i in range(3_000)]
    assert (at, None, kind) in reduce(points, 200)


def test_new_points_leave_the_older_choice_alone() -> None:
    points = [(i, float(i * 7919 % 101), 0) for i in range(8000)]
    before, after = reduce(points[:7900], 400), reduce(points, 400)
    # 7900 and 8000 iterations have the same bucket width, 128; only the last bucket of the shorter one is unfinished.
    assert [p for p in before if p[0] < 7808] == [p for p in after if p[0] < 7808]


def test_few_points_are_all_kept() -> None:
    points = [(i, 1.0, 0) for i in range(10)]
    assert reduce(points, 10) == points


def test_less_than_a_bucket_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 4"):
        reduce([], 3)
