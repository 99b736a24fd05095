"""F-GRPO: the card's numbers, and the simulation that shows what the weight is for."""

from __future__ import annotations

import math

import pytest
import torch

from trainer.advantages.focal import focal_weight
from trainer.advantages.groups import group_success, group_zscore
from trainer.contract.config import InvalidConfig
from trainer.diagnostics.tail import activity, categorical_step, retained, tail_miss
from trainer.methods import resolve


def focal(outcomes: list[float], gamma: float, **scale: float) -> tuple[float, list[float]]:
    """The group's weight, and its shaped z-scores."""
    outcome_N = torch.tensor(outcomes, dtype=torch.double)
    ids = ["g"] * len(outcomes)
    weight_N = focal_weight(group_success(outcome_N, ids, **scale), gamma)
    return float(weight_N[0]), (weight_N * group_zscore(outcome_N, ids)).tolist()


@pytest.mark.parametrize(
    ("right", "gamma", "weight", "of_right", "of_wrong"),
    [
        (6, 0.5, 0.5, 0.270030, -0.810091),
        (6, 1.0, 0.25, 0.135015, -0.405045),
        (2, 0.5, 0.866025, 1.403118, -0.467706),
    ],
)
def test_the_weight_shrinks_a_solved_prompts_advantages(
    right: int, gamma: float, weight: float, of_right: float, of_wrong: float
) -> None:
    found, advantages = focal([1.0] * right + [0.0] * (8 - right), gamma)
    assert found == pytest.approx(weight, abs=1e-6)
    assert advantages == pytest.approx([of_right] * right + [of_wrong] * (8 - right), abs=1e-6)


def test_groups_without_a_signal_have_none() -> None:
    assert focal([1.0] * 8, 0.5) == (0.0, [0.0] * 8)
    assert focal([0.0] * 8, 0.5) == (1.0, [0.0] * 8)
    assert focal([1.0] * 8, 0.0)[0] == 1.0


def test_outcomes_on_another_scale() -> None:
    assert focal([1.0] * 7 + [-1.0], 1.0, wrong=-1.0)[0] == pytest.approx(0.125)
    success = group_success(torch.tensor([1.0, 1.0, -1.0, math.nan, math.nan]), list("aaabb"), wrong=-1.0)
    assert success[:3].tolist() == pytest.approx([2 / 3] * 3)
    assert success[3:].isnan().all()
    with pytest.raises(ValueError, match="expected wrong below right"):
        group_success(torch.tensor([1.0]), ["a"], wrong=1.0)


@pytest.mark.parametrize(
    ("size", "chance"),
    [(1, 0), (2, 0.378), (4, 0.639878), (8, 0.726067), (16, 0.610930), (32, 0.377297), (64, 0.142361), (128, 0.020267)],
)
def test_usual_groups_miss_rare_solutions_most(size: int, chance: float) -> None:
    assert tail_miss(0.3, 0.03, size) == pytest.approx(chance, abs=1e-6)
    assert tail_miss(0.3, 0.03, size) <= activity(0.3, size) + 1e-12


def test_a_tail_that_is_none_has_no_chance() -> None:
    assert math.isnan(tail_miss(0.3, 0.3, 8))
    assert math.isnan(tail_miss(0.0, 0.0, 8))


def test_one_step_takes_from_right_actions_that_were_not_sampled() -> None:
    p = torch.tensor([0.3, 0.15, 0.05, 0.3, 0.2], dtype=torch.double)
    correct = torch.tensor([True, True, True, False, False])
    sampled = torch.tensor([True, True, False, False, True])
    step = categorical_step(p, correct, sampled, size=3, rate=1.0)
    assert step.logits_A.tolist() == pytest.approx([0.075, 0.0375, -0.004167, -0.025, -0.083333], abs=1e-6)
    assert step.correct == pytest.approx(0.026042, abs=1e-6)
    assert step.unsampled_correct == pytest.approx(-0.000396, abs=1e-6)


def kept(gamma: float, *, steps: int, correct_mass: float) -> float:
    """M_ret of the paper's simulation made small: 2,000 actions, 160 right, one of them an anchor; the gradient is that of
    Σ r̃_j p_j / N. It ends after ``steps``, or when so much mass is right."""
    size, rate = 8, 2.0
    generator = torch.Generator().manual_seed(0)
    logits = torch.zeros(2000, dtype=torch.double)
    logits[:160], logits[0] = 3.0, 5.0
    correct = torch.arange(2000) < 160
    p = start = torch.softmax(logits, 0)
    for _ in range(steps):
        drawn = torch.multinomial(p, size, replacement=True, generator=generator)
        reward = torch.where(correct[drawn], 1.0, -1.0).double()
        weight = focal_weight(correct[drawn].double().mean(), gamma)
        pull = torch.zeros(2000, dtype=torch.double).index_add(0, drawn, (reward - reward.mean()) * weight) * p
        logits = logits + rate / size * (pull - p * pull.sum())
        p = torch.softmax(logits, 0)
        if float(p[correct].sum()) >= correct_mass:
            break
    return retained(start, p, correct)


def test_the_weight_keeps_right_mass_at_equal_steps_and_little_of_it_at_equal_success() -> None:
    """What a comparison at equal steps shows is mostly that the weighted run learned less."""
    equal_steps = kept(1.0, steps=800, correct_mass=1.0) - kept(0.0, steps=800, correct_mass=1.0)
    equal_success = kept(1.0, steps=5000, correct_mass=0.8) - kept(0.0, steps=5000, correct_mass=0.8)
    assert equal_steps > 0.3
    assert 0 < equal_success < 0.05


def test_over_ppo_it_is_refused_with_the_reason(document) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidConfig, match="F-GRPO runs over grpo"):
        resolve(document(methods=[{"slug": "f-grpo"}], algorithm={"preset": "ppo"}))


def test_outcomes_in_the_wrong_order_are_refused(document) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidConfig, match=r"found 1\.0, expected below the one when right, 0\.5"):
        resolve(document(methods=[{"slug": "f-grpo", "params": {"right": 0.5, "wrong": 1.0}}]))
