"""Surrogates, KL estimators and aggregation against the base reference's numbers."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.contract.algorithm import AggregationName, AlgorithmSection, KlName, RatioName, SurrogateName
from trainer.core.slots import Term
from trainer.objectives.aggregate import AGGREGATIONS, Denominators, reduce_term
from trainer.objectives.kl import ESTIMATORS, adapted, kl_estimate
from trainer.objectives.ratio import RATIOS, sequence_ratio, sequence_sum_ratio, sequence_token_ratio, token_ratio
from trainer.objectives.surrogate import SURROGATES, cispo, clipped, surrogate


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
    assert float(sequence_sum_ratio(d, torch.zeros_like(d), mask)) == pytest.approx(1.221403, abs=1e-6)


def test_the_sequence_ratio_by_token_has_the_sequences_value_and_each_tokens_gradient() -> None:
    now = torch.tensor([[0.1, -0.2, 0.3, 9.0]], dtype=torch.double, requires_grad=True)
    mask = torch.tensor([[1.0, 1.0, 1.0, 0.0]], dtype=torch.double)
    ratio = sequence_token_ratio(now, torch.zeros_like(now), mask)
    assert ratio[0, :3].tolist() == pytest.approx([1.068939] * 3, abs=1e-6)
    weights = torch.tensor([[1.0, -2.0, 5.0, 0.0]], dtype=torch.double)
    (ratio * weights).sum().backward()
    assert now.grad[0].tolist() == pytest.approx([1.068939, -2 * 1.068939, 5 * 1.068939, 0.0], abs=1e-5)


@pytest.mark.parametrize("level", RATIOS)
def test_no_ratio_is_infinite_or_sees_what_is_masked(level: str) -> None:
    now = torch.tensor([[30.0, 30.0, float("inf")], [-30.0, -30.0, float("nan")]], requires_grad=True)
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
    ratio = RATIOS[level](now, torch.zeros(2, 3), mask).expand(2, 3)[:, :2]
    ratio.sum().backward()
    assert bool(ratio.isfinite().all())
    assert bool(now.grad[:, :2].isfinite().all())


@pytest.mark.parametrize("level", RATIOS)
@pytest.mark.parametrize("kind", SURROGATES)
def test_on_policy_every_surrogate_has_the_gradient_of_reinforce(kind: str, level: str) -> None:
    mask = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]], dtype=torch.double)
    advantage = torch.tensor([[0.7], [-1.3]], dtype=torch.double)
    section = AlgorithmSection(surrogate=kind, ratio=level, cispo_cap=5.0)
    now = torch.tensor([[-1.0, -2.0, -0.5], [-0.1, -3.0, 0.0]], dtype=torch.double, requires_grad=True)
    loss, _ = surrogate(section, now, now.detach(), advantage, mask)
    ((loss * mask).sum(1) / mask.sum(1)).sum().backward()
    per_token = -advantage * mask / mask.sum(1, keepdim=True)
    expected = (
        per_token * mask.sum(1, keepdim=True) if kind in ("clip", "sapo") and level == "sequence_sum" else per_token
    )
    assert torch.allclose(now.grad, expected, atol=1e-12)


def test_the_tables_have_every_name_that_a_configuration_may_hold() -> None:
    assert set(RATIOS) == set(get_args(RatioName))
    assert set(SURROGATES) == set(get_args(SurrogateName))
    assert set(AGGREGATIONS) == set(get_args(AggregationName))
    assert set(ESTIMATORS) == set(get_args(KlName))


def test_ppo_and_dual_clip_lose_the_gradient_where_cispo_keeps_it() -> None:
    cases = ((0.5, 1.0, None, -0.5), (8.0, 1.0, None, 0.0), (8.0, -1.0, None, 8.0), (8.0, -1.0, 3.0, 0.0))
    for ratio, advantage, dual, slope in cases:
        now = torch.full((1, 1), math.log(ratio), dtype=torch.double, requires_grad=True)
        mask = torch.ones(1, 1, dtype=torch.double)
        loss = clipped(token_ratio(now, torch.zeros_like(now), mask), torch.tensor([[advantage]]), epsilon=0.2,
                       epsilon_high=0.2, dual_clip=dual)  # fmt: skip
        loss.sum().backward()
        assert float(now.grad) == pytest.approx(slope)


def test_kl_estimators_have_their_known_values() -> None:
    now, reference = torch.tensor([[-1.0]]), torch.tensor([[-1.5]])
    found = [float(kl_estimate(now, reference, k)) for k in ("k1", "k2", "k3", "k1+", "k3+")]
    assert found == pytest.approx([0.5, 0.125, 0.106531, 0.5, 0.106531], abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "gradient"),
    [
        ("k1", (0.0, 0.0, 0.0)),
        ("k2", (0.098938, -0.093885, -0.005053)),
        ("k3", (0.1, -0.1, 0.0)),
        ("k1+", (0.098938, -0.093885, -0.005053)),
        ("k3+", (0.098938, -0.093885, -0.005053)),
    ],
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


def test_the_adaptive_coefficient_has_its_known_value() -> None:
    assert adapted(0.2, 0.15, target=0.1, horizon=10_000, sequences=256) == pytest.approx(0.201024)
    assert adapted(0.2, 9.0, target=0.1, horizon=10_000, sequences=256) == pytest.approx(0.201024)
    assert adapted(0.2, 0.0, target=0.1, horizon=10_000, sequences=256) == pytest.approx(0.198976)


def test_the_token_sum_is_not_divided_and_empty_sequences_count_where_asked() -> None:
    counts = Denominators(tokens=6, sequences=2, groups=1, max_length=8)
    assert float(reduce_term(Term("t", VALUES, 1.0, "token-sum"), MASK, counts)) == 20.0
    mask = torch.cat([MASK, torch.zeros(1, 4)])
    batch = SimpleNamespace(mask_NT=mask, group_ids=list("abc"), columns={}, trajectory_ids=range(3))
    assert Denominators.of(batch, max_length=8).sequences == 2
    assert Denominators.of(batch, max_length=8, count_empty=True).sequences == 3


def test_a_term_may_be_averaged_over_a_part_of_the_tokens() -> None:
    among = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    batch = SimpleNamespace(mask_NT=MASK, group_ids=list("ab"), columns={"mask/few": among}, trajectory_ids=range(2))
    counts = Denominators.of(batch, max_length=8)
    assert counts.among["mask/few"].tokens == 3
    few = Term("t", VALUES, 1.0, "token-mean", among="mask/few")
    assert float(reduce_term(few, MASK, counts, batch)) == pytest.approx(13 / 3)


def test_a_mean_over_sequences_is_over_those_with_such_a_token() -> None:
    """One of three sequences has none: it is no zero in the mean."""
    value = torch.tensor([[1.0, 5.0], [9.0, 9.0], [2.0, 9.0]])
    among = torch.tensor([[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    batch = SimpleNamespace(
        mask_NT=torch.ones(3, 2), group_ids=list("abc"), columns={"mask/few": among}, trajectory_ids=range(3)
    )
    counts = Denominators.of(batch, max_length=8)
    few = Term("t", value, 1.0, "seq-mean-token-mean", among="mask/few")
    assert float(reduce_term(few, batch.mask_NT, counts, batch)) == pytest.approx((3 + 2) / 2)


def test_nothing_to_train_is_zero_and_not_nan() -> None:
    value = torch.full((2, 4), float("nan"))
    counts = Denominators(0, 0, 0, 8)
    for mode in ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"):
        assert float(reduce_term(Term("t", value, 1.0, mode), torch.zeros(2, 4), counts)) == 0.0
