"""Group advantages: the reference's numbers, and what must not matter."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.advantages import groups

ONE = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.double)
IDS = ["x"] * 4


@pytest.mark.parametrize(
    ("advantage", "expected"),
    [
        (groups.group_zscore(ONE, IDS, eps=1e-6), [1.499997, -0.499999, -0.499999, -0.499999]),
        (groups.group_zscore(ONE, IDS, eps=1e-4), [1.499700, -0.499900, -0.499900, -0.499900]),
        (groups.group_zscore(ONE, IDS, eps=1e-6, unbiased=False), [1.732047, -0.577349, -0.577349, -0.577349]),
        (groups.leave_one_out(ONE, IDS), [1.0, -0.333333, -0.333333, -0.333333]),
        (groups.group_mean(ONE, IDS), [0.75, -0.25, -0.25, -0.25]),
    ],
)
def test_known_values(advantage: torch.Tensor, expected: list[float]) -> None:
    assert advantage.tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("estimate", [groups.group_zscore, groups.group_mean, groups.leave_one_out])
def test_no_variance_and_a_single_member_give_exactly_zero(estimate) -> None:  # type: ignore[no-untyped-def]
    assert estimate(torch.ones(4), IDS).tolist() == [0.0] * 4
    assert estimate(torch.tensor([0.7]), ["alone"]).tolist() == [0.0]


@pytest.mark.parametrize("estimate", [groups.group_zscore, groups.group_mean, groups.leave_one_out])
def test_no_verdict_counts_nowhere(estimate) -> None:  # type: ignore[no-untyped-def]
    with_gap = estimate(torch.tensor([1.0, math.nan, 0.0, 0.0]), IDS)
    without = estimate(torch.tensor([1.0, 0.0, 0.0]), IDS[:3])
    assert with_gap[1] == 0.0
    assert with_gap[[0, 2, 3]].tolist() == pytest.approx(without.tolist(), abs=1e-6)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=12),
       st.floats(-3, 3), st.randoms(use_true_random=False))  # fmt: skip
def test_shift_and_order_do_not_matter(rows: list[tuple[str, float]], shift: float, rng) -> None:  # type: ignore[no-untyped-def]
    ids = [g for g, _ in rows]
    reward = torch.tensor([r for _, r in rows], dtype=torch.double)
    for estimate in (groups.group_zscore, groups.group_mean, groups.leave_one_out):
        plain = estimate(reward, ids)
        assert estimate(reward + shift, ids).tolist() == pytest.approx(plain.tolist(), abs=1e-6)
        order = list(range(len(rows)))
        rng.shuffle(order)
        moved = estimate(reward[order], [ids[i] for i in order])
        assert moved.tolist() == pytest.approx(plain[order].tolist(), abs=1e-9)


def test_group_std_is_unbiased_per_group() -> None:
    found = groups.group_std(torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0]), ["a", "a", "a", "a", "b"])
    assert found.tolist() == pytest.approx([0.5])
