"""Sampler correction, token masks, value loss and overlong punishment: literal numbers and edges."""

from __future__ import annotations

import math

import pytest
import torch

from trainer.objectives.mismatch import correction
from trainer.objectives.token_masks import high_entropy, on_policy_enough
from trainer.objectives.value import explained_variance, value_loss
from trainer.rewards.overlong import overlong_punishment

OLD = torch.log(torch.tensor([[0.5, 0.2, 0.9], [0.4, 0.4, 0.4]], dtype=torch.double))
SAMPLER = torch.log(torch.tensor([[0.1, 0.4, math.nan], [0.4, 0.2, 0.1]], dtype=torch.double))
MASK = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]], dtype=torch.double)


@pytest.mark.parametrize(
    ("mode", "low", "expected"),
    [
        ("token_truncate", None, [[3.0, 0.5, 1.0], [1.0, 2.0, 1.0]]),
        ("token_truncate", 0.8, [[3.0, 0.8, 1.0], [1.0, 2.0, 1.0]]),
        ("token_mask", None, [[0.0, 0.5, 1.0], [1.0, 2.0, 1.0]]),
        ("token_mask", 0.8, [[0.0, 0.0, 1.0], [1.0, 2.0, 1.0]]),
        ("sequence_truncate", None, [[2.5], [2.0]]),
        ("sequence_mask", 2.2, [[2.5], [0.0]]),
    ],
)
def test_the_sampler_correction_is_bounded_by_token_or_sequence(mode: str, low: float | None, expected) -> None:  # type: ignore[no-untyped-def]
    found = correction(OLD, SAMPLER, MASK, mode=mode, low=low, high=3.0)
    assert torch.allclose(found.weight, torch.tensor(expected, dtype=torch.double))


def test_equal_engines_need_no_correction() -> None:
    for mode in ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"):
        found = correction(OLD, OLD, MASK, mode=mode, low=0.5, high=2.0)
        assert found.weight.unique().tolist() == [1.0]
        assert not bool(found.outside.any())


def test_an_unknown_correction_is_refused() -> None:
    with pytest.raises(ValueError, match="sequence _ truncate"):
        correction(OLD, SAMPLER, MASK, mode="token", low=None, high=None)


def test_the_high_entropy_share_is_of_the_trained_tokens() -> None:
    entropy = torch.tensor([[0.1, 0.9, 5.0], [0.5, 0.2, 0.7]])
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    assert high_entropy(entropy, mask, 0.4).tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    assert high_entropy(entropy, mask, 1.0).tolist() == mask.tolist()
    assert high_entropy(entropy, torch.zeros(2, 3), 0.4).tolist() == [[0.0] * 3] * 2


def test_sequences_far_off_policy_are_left_out_only_with_a_negative_advantage() -> None:
    now = torch.tensor([[-2.0, -2.0, -9.0]] * 3)
    sampler = torch.tensor([[-1.0, -1.0, 0.0], [-1.0, -1.0, 0.0], [-1.0, math.nan, 0.0]])
    mask = torch.tensor([[1.0, 1.0, 0.0]] * 3)
    keep = on_policy_enough(torch.tensor([[1.0], [-1.0], [-1.0]]), now, sampler, mask, 0.6)
    assert keep.tolist() == [[1.0], [0.0], [1.0]]


def test_the_value_loss_takes_the_larger_square() -> None:
    value = torch.tensor([[1.0, 1.0, 0.0, 2.0]], requires_grad=True)
    old = torch.tensor([[0.5, 1.0, 0.0, 0.0]])
    returns = torch.tensor([[2.0, 0.5, math.nan, 0.0]])
    loss, clipped = value_loss(value, old, returns, 0.2)
    assert loss[0].tolist() == pytest.approx([0.5 * 1.3**2, 0.5 * 0.5**2, 0.0, 0.5 * 2.0**2])
    assert clipped.tolist() == [[True, False, False, False]]
    loss.sum().backward()
    assert value.grad[0].tolist() == pytest.approx([0.0, 0.5, 0.0, 2.0])
    plain, _ = value_loss(value.detach(), old, returns, None)
    assert plain[0].tolist() == pytest.approx([0.5, 0.125, 0.0, 2.0])


def test_explained_variance_is_one_for_perfect_values_and_undefined_for_constant_returns() -> None:
    returns = torch.tensor([[0.0, 1.0, math.nan], [0.5, 9.0, 9.0]])
    mask = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    assert explained_variance(returns, returns, mask) == 1.0
    assert explained_variance(torch.zeros(2, 3), returns, mask) == 0.0
    assert math.isnan(explained_variance(returns, torch.ones(2, 3), mask))


@pytest.mark.parametrize(("length", "expected"), [(16, 0.0), (17, -0.25), (18, -0.5), (20, -1.0), (21, -1.0)])
def test_the_overlong_punishment_grows_over_the_buffer(length: int, expected: float) -> None:
    assert overlong_punishment(length, limit=20, buffer=4) == expected
