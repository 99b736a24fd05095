"""pass@k and its companions against hand-computed numbers (Chen et al. 2021; the diagnostics reference)."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.contract import passk


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (10, 3, 1, 0.3), (10, 3, 5, 0.916667), (10, 3, 7, 0.991667), (10, 3, 8, 1.0), (10, 0, 5, 0.0), (10, 10, 1, 1.0),
        (16, 1, 8, 0.5), (16, 2, 8, 0.766667), (200, 1, 100, 0.5), (1000, 3, 500, 0.875375), (8, 2, 1, 0.25),
        (8, 2, 4, 0.785714), (8, 2, 7, 1.0), (5, 1, 5, 1.0), (4, 1, 4, 1.0),
    ],
)  # fmt: skip
def test_pass_at_k_has_its_known_values(n: int, c: int, k: int, expected: float) -> None:
    assert passk.pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("n", "c", "k"), [(5, 1, 6), (8, 2, 9), (4, 5, 1), (4, -1, 1), (4, 1, 0)])
def test_what_has_no_unbiased_estimator_is_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="pass@"):
        passk.pass_at_k(n, c, k)


@given(st.integers(1, 60), st.data())
def test_pass_at_k_grows_with_k_and_c_and_ends_at_solved(n: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, n))
    curve = [passk.pass_at_k(n, c, k) for k in range(1, n + 1)]
    assert curve[0] == pytest.approx(c / n)
    assert all(a <= b + 1e-12 for a, b in itertools.pairwise(curve))
    assert curve[-1] == float(c > 0)
    if c < n:
        assert all(passk.pass_at_k(n, c + 1, k) >= v - 1e-12 for k, v in enumerate(curve, 1))


def test_the_estimator_is_unbiased_where_the_plug_in_is_not() -> None:
    p, n, k = 0.2, 6, 3
    chances = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    assert sum(w * passk.pass_at_k(n, c, k) for c, w in enumerate(chances)) == pytest.approx(0.488)
    assert sum(w * (1 - (1 - c / n) ** k) for c, w in enumerate(chances)) == pytest.approx(0.426667, abs=1e-6)


def test_a_mean_over_problems_weighs_each_problem_once() -> None:
    counts = [(8, c) for c in (8, 4, 1, 0, 2, 0, 3, 8)]
    assert passk.mean_pass_at_k(counts, 4) == pytest.approx(0.65)
    assert math.isnan(passk.mean_pass_at_k([], 1))


def test_bound_and_headroom_have_their_known_values() -> None:
    assert passk.homogeneity_bound(0.375, 4) == pytest.approx(0.847412, abs=1e-6)
    assert passk.kappa(0.375, 0.570325, 4) == pytest.approx(0.413463, abs=1e-6)
    counts = [(8, c) for c in (8, 4, 1, 0)]
    one, four = passk.mean_pass_at_k(counts, 1), passk.mean_pass_at_k(counts, 4)
    assert (one, four) == (pytest.approx(0.40625), pytest.approx(0.621429, abs=1e-6))
    assert passk.kappa(one, four, 4) == pytest.approx(0.458347, abs=1e-6)
    assert math.isnan(passk.kappa(0.0, 0.0, 4))
    assert math.isnan(passk.kappa(0.3, 0.3, 1))


def test_the_chance_line_is_exact() -> None:
    assert passk.chance_pass_at_k([0.5, 0.0], 2) == pytest.approx(0.375)


def test_effective_number_comes_from_unbiased_collisions() -> None:
    assert passk.collision_mass([4, 2, 1, 1]) == pytest.approx(0.25)
    assert passk.collision_mass([1] * 8) == 0.0
    assert math.isnan(passk.collision_mass([1]))
    assert passk.effective_number([[4, 2, 1, 1]]) == (pytest.approx(4.0), 1)
    assert passk.effective_number([[2], [1, 1]]) == (pytest.approx(2.0), 2)
    assert passk.effective_number([[1, 1]])[0] == math.inf
    with pytest.raises(ValueError, match="two correct"):
        passk.effective_number([[1]])


def test_without_a_collision_only_a_lower_bound_is_known() -> None:
    assert passk.effective_lower_bound(8) == 13
    assert math.isnan(passk.effective_lower_bound(1))


def test_k_grid_and_cover() -> None:
    assert passk.k_grid(64) == [1, 2, 4, 8, 16, 32, 64]
    assert passk.k_grid(20) == [1, 2, 4, 8, 16]
    assert passk.cover_at([(10, 1), (10, 5), (10, 9), (10, 0)], 0.5) == 0.5
