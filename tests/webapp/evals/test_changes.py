"""Gained and lost problems: literal numbers, and the null that stands beside the counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.webapp.making import evaluation, make_run
from webapp.evals.changes import benjamini_hochberg, changes_between, expected_one_sided, fisher
from webapp.projects.models import Project

counts = st.integers(1, 20).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))


@pytest.mark.parametrize(
    ("a", "b", "p"),
    [
        # Tables with margins (3, 3): C(3,3)·C(3,0)/C(6,3) = 1/20, on both sides.
        ((3, 3), (3, 0), 0.1),
        # Fisher's tea: (16 + 1 + 16 + 1)/70.
        ((4, 3), (4, 1), 34 / 70),
        ((8, 4), (8, 4), 1.0),
        ((5, 0), (5, 0), 1.0),
    ],
)
def test_fishers_exact_test(a: tuple[int, int], b: tuple[int, int], p: float) -> None:
    assert fisher(a, b) == pytest.approx(p)


@given(counts, counts)
def test_fishers_test_does_not_care_which_sample_is_first(a: tuple[int, int], b: tuple[int, int]) -> None:
    assert fisher(a, b) == pytest.approx(fisher(b, a))
    assert 0 < fisher(a, b) <= 1


def test_benjamini_hochberg_rejects_up_to_the_last_that_is_below_its_line() -> None:
    # Lines for four tests at 10 %: .025, .05, .075, .1. The second smallest, .049, is below its line; .09 is above.
    assert benjamini_hochberg([0.049, 0.5, 0.01, 0.09]) == [True, False, True, False]
    # A later one below its line carries the earlier ones that were not.
    assert benjamini_hochberg([0.03, 0.04]) == [True, True]
    assert benjamini_hochberg([]) == []


def test_an_unchanged_policy_loses_what_resampling_loses() -> None:
    # One sample each, p = 1/2: half the draws hit first, half of those then miss.
    assert expected_one_sided([(1, 1)], [(1, 0)]) == pytest.approx(0.25)
    assert expected_one_sided([(8, 8), (8, 0)], [(8, 8), (8, 0)]) == 0


def test_counts_and_significant_problems(project: Project) -> None:
    run = make_run(project)
    start = evaluation(run, 0, [(16, 14), (16, 0), (16, 1), (16, 0), (16, 8)])
    now = evaluation(run, 9, [(16, 1), (16, 0), (16, 0), (16, 2), (16, 9)], weights="later")
    found = changes_between(start, now)
    assert found is not None
    assert (found.problems, found.gained, found.lost, found.never) == (5, 1, 1, 1)
    assert [(change.uid, change.gained) for change in found.significant] == [("p0", False)]
    # Of problem 2, p = 1/32: (1 − (31/32)^16)·(31/32)^16; problem 3 has p = 2/32; the others hardly add.
    few = [(1 - (31 / 32) ** 16) * (31 / 32) ** 16, (1 - (30 / 32) ** 16) * (30 / 32) ** 16]
    assert found.expected_lost == pytest.approx(sum(few), abs=1e-3)
