"""Intervals, p values and crossings, with numbers from tables and by hand."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.contract.intervals import (
    bca,
    bca_p_value,
    crossing,
    holm,
    resampling_weights,
    seed_interval,
    seed_p_value,
    t_quantile,
)


@pytest.mark.parametrize(("df", "quantile"), [(1, 12.7062), (2, 4.3027), (4, 2.7764), (9, 2.2622), (30, 2.0423)])
def test_the_t_quantile_is_the_tables(df: int, quantile: float) -> None:
    assert t_quantile(0.975, df) == pytest.approx(quantile, abs=5e-5)


def test_the_interval_over_seeds_is_the_t_interval() -> None:
    found = seed_interval([1.0, 2.0, 3.0])
    assert found == pytest.approx((2.0, 2 - 4.30265 / 3**0.5, 2 + 4.30265 / 3**0.5), abs=1e-4)
    assert seed_interval([0.4]) is None


def test_the_p_value_over_seeds_is_the_t_tests() -> None:
    # t = 2 / (1 / √3) = 3.4641 with 2 degrees of freedom.
    assert seed_p_value([1.0, 2.0, 3.0]) == pytest.approx(0.07418, abs=1e-5)
    assert seed_p_value([-1.0, 1.0]) == pytest.approx(1.0)
    assert seed_p_value([0.4]) is None
    assert seed_p_value([0.4, 0.4, 0.4]) is None


def test_holm_is_the_step_down_of_a_small_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.7, 0.8]) == pytest.approx([1.0, 1.0])


def test_a_comparison_without_a_p_value_counts_as_one() -> None:
    assert holm([0.01, None]) == [pytest.approx(0.02), None]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(p_values: list[float]) -> None:
    adjusted = [p for p in holm(list(p_values)) if p is not None]
    assert all(a >= p for a, p in zip(adjusted, p_values, strict=True))
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    assert [adjusted[i] for i in order] == sorted(adjusted)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.floats(-0.3, 0.3))
def test_the_p_value_agrees_with_the_interval(seed: int, shift: float) -> None:
    draw = random.Random(seed)
    values = [draw.choice([-1.0, 0.0, 0.0, 0.5]) + shift for _ in range(60)]
    weights = resampling_weights(60)
    estimate, p = bca(values, weights=weights), bca_p_value(values, weights=weights)
    assert estimate.lo is not None
    assert estimate.hi is not None
    assert p is not None
    if abs(p - 0.05) > 0.004:  # quantiles are interpolated, shares are not
        assert (p < 0.05) == (estimate.lo > 0 or estimate.hi < 0)


def test_the_p_value_is_that_of_the_z_test_for_plain_data() -> None:
    # 200 values, half +1 and half −0.8: mean .1, standard error .9 / √200 = .0636, z = 1.571, p = .116.
    p = bca_p_value([1.0, -0.8] * 100)
    assert p == pytest.approx(0.116, abs=0.02)


def test_where_there_is_no_interval_there_is_no_p_value() -> None:
    assert bca_p_value([0.5] * 100) is None
    assert bca_p_value([0.1, 0.2] * 14) is None


def test_a_p_value_is_never_smaller_than_the_bootstrap_resolves() -> None:
    assert bca_p_value([1.0, 1.1] * 50) == 1 / 2000


def test_a_clear_crossing_is_an_interval_of_k() -> None:
    # A solves every problem with p = .25; B solves 60 % of the problems always and the others never.
    a = [(64, 16)] * 100
    b = [(64, 64)] * 60 + [(64, 0)] * 40
    found = crossing(a, b, [1, 2, 4, 8, 16, 32, 64])
    assert found is not None
    assert found.resolved
    assert not found.a_above_before
    # 1 − .75^k = .6 at k = 3.2 for independent draws; the unbiased estimator of 16 of 64 reaches it a little earlier.
    assert found.k == pytest.approx(3.0, abs=0.25)
    assert found.lo is not None
    assert found.hi is not None
    assert 2.3 < found.lo < found.k < found.hi < 4.2


def test_curves_that_never_cross_have_no_crossing() -> None:
    assert crossing([(16, 8)] * 50, [(16, 2)] * 50, [1, 4, 16]) is None


def test_curves_that_cross_twice_are_not_resolved() -> None:
    # A − B over 100 problems is +, −, + at k = 1, 8, 64.
    a = [(64, 64)] * 31 + [(64, 2)] * 69
    b = [(64, 16)] * 90 + [(64, 0)] * 10
    found = crossing(a, b, [1, 8, 64])
    assert found is not None
    assert not found.resolved


def test_too_few_problems_do_not_resolve_a_crossing() -> None:
    found = crossing([(64, 16)] * 10, [(64, 64)] * 6 + [(64, 0)] * 4, [1, 2, 4, 8, 16])
    assert found is not None
    assert not found.resolved


def test_a_difference_of_nothing_has_no_floor() -> None:
    assert bca([0.0] * 200, difference=True).note == "no difference"
    assert bca([0.0] * 200).note == "at the floor"
    assert bca([1.0] * 200).note == "at the ceiling"
    assert bca([1.0] * 200, difference=True).note == "n too small"


def test_curves_whose_order_the_resamples_do_not_bear_out_are_not_said_to_stay_apart() -> None:
    rng = random.Random(3)
    a = [(16, rng.randint(0, 8)) for _ in range(100)]
    b = [(16, min(16, max(0, c + rng.choice([-1, 0, 0, 0, 1])))) for _, c in a]
    found = crossing(a, b, [1, 4, 16])
    assert found is not None
    assert not found.resolved


def test_one_and_the_same_curve_does_not_cross_itself() -> None:
    a = [(16, c % 5) for c in range(60)]
    assert crossing(a, a, [1, 4, 16]) is None
