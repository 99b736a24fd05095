"""Surrogates, KL estimators and aggregation against the base reference's numbers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.core.slots import Term
from trainer.objectives.aggregate import Denominators, reduce_term
from trainer.objectives.kl import kl_estimate
from trainer.objectives.surrogate import cispo, clipped, sequence_ratio


def loss(advantage: float, ratio: float, **options: float) -> float:
    options = {"epsilon": 0.2, "epsilon_high": 0.2, **options}
    return float(clipped(torch.tensor([[ratio]]), torch.tensor([[advantage]]), **options))


@pytest.mark.parametrize(
    ("advantage", "ratio", "options", "expected"),
    [
        (1, 1.5, {}, -1.2), (1, 0.5, {}, -0.5), (-1, 0.5, {}, 0.8), (-1, 1.5, {}, 1.5), (-1, 4, {"dual_clip": 3}, 3.0),
        (-1, 4, {}, 4.0), (1, 1.5, {"epsilon_high": 0.28}, -1.28),
    ],
)  # fmt: skip
def test_the_clipped_surrogate_has_its_known_values(advantage, ratio, options, expected) -> None:  # type: ignore[no-untyped-def]
    assert loss(advantage, ratio, **options) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("ratio", "advantage", "slope"), [(0.5, 1.0, -0.5), (8.0, 1.0, -5.0), (8.0, -1.0, 5.0)])
def test_cispo_never_loses_its_gradient(ratio: float, advantage: float, slope: float) -> None:
    logprob = torch.zeros(1, 1, requires_grad=True)
    cispo(logprob, torch.tensor([[ratio]]), torch.tensor([[advantage]]), cap=5.0).sum().backward()
    assert float(logprob.grad) == pytest.approx(slope)


def test_the_sequence_ratio_is_a_geometric_mean() -> None:
    d = torch.tensor([[0.1, -0.2, 0.3, 9.0]])
    mask = torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    assert float(sequence_ratio(d, torch.zeros_like(d), mask)) == pytest.approx(1.068939, abs=1e-6)


def test_kl_estimators_have_their_known_values() -> None:
    now, reference = torch.tensor([[-1.0]]), torch.tensor([[-1.5]])
    found = [float(kl_estimate(now, reference, k)) for k in ("k1", "k2", "k3")]
    assert found == pytest.approx([0.5, 0.125, 0.106531], abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "gradient"),
    [("k1", (0.0, 0.0, 0.0)), ("k2", (0.098938, -0.093885, -0.005053)), ("k3", (0.1, -0.1, 0.0))],
)
def test_kl_losses_have_their_known_expected_gradients(kind: str, gradient: tuple[float, ...]) -> None:
    pi, reference = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.4, 0.4, 0.2]).double()
    logits = pi.log().clone().requires_grad_()
    logprobs = logits.log_softmax(0)
    expected = (pi * kl_estimate(logprobs[None], reference.log()[None], kind)[0]).sum()
    expected.backward()
    assert logits.grad.tolist() == pytest.approx(gradient, abs=1e-6)


VALUES = torch.tensor([[1.0, 3.0, 9.0, 9.0], [2.0, 2.0, 4.0, 8.0]])
MASK = torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token-mean", 3.333333),
        ("seq-mean-token-mean", 3.0),
        ("seq-mean-token-sum", 10.0),
        ("seq-mean-token-sum-norm", 1.25),
    ],
)
def test_aggregations_have_their_known_values(mode, expected: float) -> None:  # type: ignore[no-untyped-def]
    counts = Denominators(tokens=6, sequences=2, groups=1, max_length=8)
    assert float(reduce_term(Term("t", VALUES, 1.0, mode), MASK, counts)) == pytest.approx(expected, abs=1e-6)


@given(st.sampled_from(["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]),
       st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=2, max_size=7), st.data())  # fmt: skip
def test_any_split_into_micro_batches_gives_the_same_loss(mode, rows, data) -> None:  # type: ignore[no-untyped-def]
    mask = torch.tensor(rows, dtype=torch.double)
    value = torch.arange(mask.numel(), dtype=torch.double).reshape(mask.shape).sin()
    alive = int((mask.sum(1) > 0).sum())
    counts = Denominators(tokens=int(mask.sum()), sequences=alive, groups=1, max_length=5)
    whole = reduce_term(Term("t", value, 0.5, mode), mask, counts)
    cut = data.draw(st.integers(1, len(rows) - 1))
    parts = [reduce_term(Term("t", value[s], 0.5, mode), mask[s], counts) for s in (slice(0, cut), slice(cut, None))]
    assert float(sum(parts)) == pytest.approx(float(whole), abs=1e-12)


def test_nothing_to_train_is_zero_and_not_nan() -> None:
    value = torch.full((2, 4), float("nan"))
    counts = Denominators(0, 0, 0, 8)
    for mode in ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"):
        assert float(reduce_term(Term("t", value, 1.0, mode), torch.zeros(2, 4), counts)) == 0.0
