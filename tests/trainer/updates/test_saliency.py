"""The card's numbers, ties, scopes and edges of the choice of channels."""

from __future__ import annotations

import math
import random

import pytest
import torch

from trainer.policy.hooks import Channels
from trainer.updates.saliency import chosen, energy, jaccard, masks, saliency, standing_out

RNG = random.Random(0)
X = torch.tensor([[1.0, 0, 2], [0, 1, -1], [1, 1, 1]])
W = torch.tensor([[1, 0, 0.5], [0, 0.1, 0], [-2, 0, 1], [0.2, 0.2, 0.2]])


def channels(values: torch.Tensor) -> Channels:
    found = Channels.of_size(values.shape[1])
    found.add(values)
    return found


def test_the_cards_example() -> None:
    q = X @ W.T
    torch.testing.assert_close(q, torch.tensor([[2, 0, 0, 0.6], [-0.5, 0.1, -1, 0], [1.5, 0.1, -1, 0.6]]))
    mean = saliency(channels(q), "mean")
    assert mean.tolist() == pytest.approx([1.333333, 0.066667, 0.666667, 0.4], abs=1e-6)
    largest = saliency(channels(q), "max")
    assert largest.tolist() == pytest.approx([2, 0.1, 1, 0.6])
    for s in (mean, largest):
        assert chosen(s, 0.3, "top", RNG).tolist() == [True, False, True, False]
    assert saliency(channels(q), "rms").tolist() == pytest.approx([1.471960, 0.081650, 0.816497, 0.489898], abs=1e-6)


@pytest.mark.parametrize(
    ("share", "d", "k"), [(0.3, 4, 2), (0.3, 10, 3), (0.01, 4, 1), (1.0, 7, 7), (0.7, 10, 7), (0.6, 5, 3)]
)
def test_k_is_rounded_up_and_at_least_one(share: float, d: int, k: int) -> None:
    for choice in ("top", "bottom", "random"):
        assert int(chosen(torch.arange(d).double(), share, choice, RNG).sum()) == k  # type: ignore[arg-type]
    assert bool(chosen(torch.arange(d).double(), share, "all", RNG).all())


def test_ties_go_to_the_lower_index() -> None:
    s = torch.tensor([1.0, 2.0, 2.0, 2.0])
    assert chosen(s, 0.5, "top", RNG).tolist() == [False, True, True, False]
    assert chosen(torch.ones(4), 0.5, "bottom", RNG).tolist() == [True, True, False, False]


def test_scopes() -> None:
    s = {"a": torch.tensor([9.0, 8, 1, 2]), "b": torch.tensor([3.0, 0, 0, 7])}
    assert {n: m.tolist() for n, m in masks(s, 0.5, "top", "per_layer", 2, RNG).items()} == {
        "a": [True, True, False, False], "b": [True, False, False, True]}  # fmt: skip
    assert {n: m.tolist() for n, m in masks(s, 0.5, "top", "per_head", 2, RNG).items()} == {
        "a": [True, False, False, True], "b": [True, False, False, True]}  # fmt: skip
    assert {n: m.tolist() for n, m in masks(s, 0.25, "top", "global", 2, RNG).items()} == {
        "a": [True, True, False, False], "b": [False, False, False, False]}  # fmt: skip


def test_overlap_energy_and_what_stands_out() -> None:
    a, b = torch.tensor([True, False, True]), torch.tensor([True, True, False])
    assert jaccard(a, b) == pytest.approx(1 / 3)
    assert math.isnan(jaccard(a & b & ~a, torch.zeros(3, dtype=torch.bool)))
    assert energy(torch.tensor([3.0, 4.0, 0.0]), torch.tensor([False, True, False])) == pytest.approx(16 / 25)
    assert math.isnan(energy(torch.zeros(2), torch.ones(2, dtype=torch.bool)))
    assert standing_out(torch.tensor([1.0, 2.0, 8.0])) == 4
    assert math.isnan(standing_out(torch.zeros(3)))
    assert bool(torch.isnan(saliency(Channels.of_size(2), "mean")).all())
