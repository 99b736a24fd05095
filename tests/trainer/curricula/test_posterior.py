"""The card's table, exact sums for whole numbers, and what forgetting does."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.curricula.posterior import Beta


@pytest.mark.parametrize(
    ("right", "wrong", "tau", "expected"),
    [(0, 8, 0.25, 0.924915), (1, 7, 0.25, 0.699661), (2, 6, 0.25, 0.399323), (4, 4, 0.25, 0.048927),
     (0, 8, 0.10, 0.612580), (0, 0, 0.25, 0.250000), (0, 8, 0.0, 0.0), (3, 1, 1.0, 1.0)],
)  # fmt: skip
def test_the_cards_table(right: int, wrong: int, tau: float, expected: float) -> None:
    assert Beta().after(right, wrong).below(tau) == pytest.approx(expected, abs=5e-7)


@given(a=st.integers(1, 60), b=st.integers(1, 60), x=st.floats(0, 1))
def test_whole_parameters_give_the_binomial_sum(a: int, b: int, x: float) -> None:
    n = a + b - 1
    expected = math.fsum(math.comb(n, j) * x**j * (1 - x) ** (n - j) for j in range(a, n + 1))
    assert Beta(a, b).below(x) == pytest.approx(expected, abs=1e-9)


@given(a=st.floats(0.5, 200), b=st.floats(0.5, 200), x=st.floats(0.001, 0.999))
def test_both_tails_make_one(a: float, b: float, x: float) -> None:
    assert Beta(a, b).below(x) + Beta(b, a).below(1 - x) == pytest.approx(1, abs=1e-9)


def test_forgetting_draws_back_to_the_prior() -> None:
    found = Beta(1, 9).after(2, 6, discount=0.9)
    assert (found.a, found.b) == pytest.approx((3.0, 14.2))
    assert Beta(50, 3).after(1, 0, discount=0.0) == Beta(2.0, 1.0)
    assert Beta(4, 4).after(0, 0) == Beta(4.0, 4.0)
    assert Beta(2, 6).mean == 0.25
