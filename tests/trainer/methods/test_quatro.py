"""QUATRO: the card's numbers, the optimum as a fixed point, and its refusals."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from trainer.contract.config import InvalidConfig
from trainer.contract.exit_codes import ExitCode
from trainer.methods import resolve
from trainer.objectives.trust_region import LEAST, coefficient, divergence, gain, log_target, multipliers
from trainer.testing.replay import story_of

ONE_RIGHT = torch.tensor([[0.75, -0.25, -0.25, -0.25]], dtype=torch.double)
ONE_WRONG = torch.tensor([[0.25, 0.25, 0.25, -0.75]], dtype=torch.double)
ALL = torch.ones(1, 4, dtype=torch.double)


def test_the_multiplier_of_one_right_rollout() -> None:
    found = multipliers(ONE_RIGHT, ALL, 0.1)
    assert float(found) == pytest.approx(1.081238, abs=1e-6)
    target = log_target(ONE_RIGHT, ALL, found)
    assert (target.exp() / 4)[0].tolist() == pytest.approx([0.456672, *[0.181109] * 3], abs=1e-6)
    assert target.exp()[0].tolist() == pytest.approx([1.826689, *[0.724437] * 3], abs=1e-6)
    log_z = float((ONE_RIGHT / found).exp().mean().log())
    assert float(found) * log_z == pytest.approx(0.098549, abs=1e-6)
    dual = float(found) * 0.1 + float(found) * log_z
    assert dual == pytest.approx(0.206672, abs=1e-6)
    assert float((target.exp() / 4 * ONE_RIGHT).sum()) == pytest.approx(dual, abs=1e-6)


def test_a_small_budget_is_near_the_z_score() -> None:
    found = multipliers(ONE_RIGHT, ALL, 0.01)
    assert float(found) == pytest.approx(3.210563, abs=1e-6)
    assert float(ONE_RIGHT.std(correction=0)) / math.sqrt(0.02) == pytest.approx(3.061862, abs=1e-6)
    assert log_target(ONE_RIGHT, ALL, found).exp()[0].tolist() == pytest.approx([1.251132, *[0.916289] * 3], abs=1e-6)
    # c/λ → √(2ε)·z as ε → 0.
    tiny = multipliers(ONE_RIGHT, ALL, 1e-6)
    z = ONE_RIGHT / ONE_RIGHT.std(correction=0)
    torch.testing.assert_close(log_target(ONE_RIGHT, ALL, tiny), math.sqrt(2e-6) * z, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("ratio", "expected"), [(1.0, 0.651451), (2.0, -0.196011), (0.5, 0.700454), (1.826689, 0.0)])
def test_the_weight_pulls_to_the_target_from_both_sides(ratio: float, expected: float) -> None:
    found = multipliers(ONE_RIGHT, ALL, 0.1)
    target = log_target(ONE_RIGHT, ALL, found)[0, 0]
    moved = torch.tensor(math.log(ratio), dtype=torch.double)
    assert float(coefficient(moved, target, found[0], 10)) == pytest.approx(expected, abs=2e-6)
    wrong = log_target(ONE_RIGHT, ALL, found)[0, 1]
    assert float(coefficient(torch.zeros((), dtype=torch.double), wrong, found[0], 10)) == pytest.approx(
        -0.348549, abs=1e-6
    )


def test_a_budget_that_all_weight_on_the_right_ones_does_not_use_up_is_slack() -> None:
    assert float(multipliers(ONE_WRONG, ALL, 0.3)) == LEAST
    found = multipliers(ONE_WRONG, ALL, 0.1)
    assert float(found) == pytest.approx(0.726677, abs=1e-6)
    assert log_target(ONE_WRONG, ALL, found).exp()[0].tolist() == pytest.approx([*[1.229803] * 3, 0.310592], abs=1e-6)


def test_without_variance_there_is_no_multiplier_and_the_target_is_to_stay() -> None:
    assert math.isnan(float(multipliers(torch.zeros(1, 4, dtype=torch.double), ALL, 0.1)))
    stay = log_target(torch.zeros(1, 4, dtype=torch.double), ALL, torch.ones(1, dtype=torch.double))[0, 0]
    assert float(stay) == pytest.approx(0, abs=1e-12)
    for moved in (0.5, -0.5, 0.0):
        at = torch.tensor(moved, dtype=torch.double)
        expected = -2 * math.exp(moved) * moved
        assert float(coefficient(at, stay, torch.tensor(2.0), 10)) == pytest.approx(expected, abs=1e-12)


def test_padding_and_other_groups_change_nothing() -> None:
    padded = torch.tensor([[0.75, -0.25, -0.25, -0.25, 9.0], [0.25, 0.25, 0.25, -0.75, -9.0]], dtype=torch.double)
    mask = torch.tensor([[1.0, 1, 1, 1, 0]] * 2, dtype=torch.double)
    found = multipliers(padded, mask, 0.1)
    assert found.tolist() == pytest.approx([1.081238, 0.726677], abs=1e-6)
    assert divergence(log_target(padded, mask, found), mask).tolist() == pytest.approx([0.1, 0.1], abs=1e-9)


def test_gradient_steps_on_one_batch_end_at_the_edge_of_the_region() -> None:
    found = multipliers(ONE_RIGHT, ALL, 0.1)
    target = log_target(ONE_RIGHT, ALL, found)[0]
    logits = torch.zeros(4, dtype=torch.double, requires_grad=True)
    for _ in range(4000):
        log_ratio = logits.log_softmax(0) - math.log(0.25)
        objective = gain(log_ratio, target, found).mean()
        (direct,) = torch.autograd.grad(objective, logits, retain_graph=True)
        weights = coefficient(log_ratio.detach(), target, found, 1e9)
        (by_weight,) = torch.autograd.grad((weights * logits.log_softmax(0)).mean(), logits)
        torch.testing.assert_close(direct, by_weight, atol=1e-15, rtol=0)
        with torch.no_grad():
            logits += direct
    ratio = (logits.log_softmax(0) - math.log(0.25)).exp().detach()
    assert ratio.tolist() == pytest.approx([1.8267, *[0.7244] * 3], abs=1e-4)
    assert float((ratio / 4 * ratio.log()).sum()) == pytest.approx(0.1, abs=1e-4)


@pytest.mark.parametrize("params", [{}, {"log_ratio": "mean", "scale": "over_lambda", "budget": 1e-4}])
def test_several_updates_of_a_batch_use_its_budget(params, run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    asked = document(
        methods=[{"slug": "quatro", "params": params}],
        algorithm={"preset": "grpo", "prompts_per_iteration": 4, "num_generations": 4, "num_iterations": 3},
        budget={"iterations": 2},
    )
    assert run(asked, tmp_path / "r") == ExitCode.FINISHED
    found = story_of(tmp_path / "r").scalars
    assert (found[1, "quatro/kl_realised"] or 0) > 0
    assert (found[1, "quatro/lambda_min"] or 0) >= 0.05
    assert (1, "quatro/lambda_vs_p") in story_of(tmp_path / "r").figures
    assert (1, "clip_ratio/low_mean") not in found


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [({"mismatch": "token_truncate"}, "algorithm.mismatch"), ({"staleness": 1}, "algorithm.staleness")],
)
def test_other_samplers_and_stale_batches_are_refused(algorithm, words, document) -> None:  # type: ignore[no-untyped-def]
    asked = document(methods=[{"slug": "quatro"}], algorithm={"preset": "grpo", **algorithm})
    with pytest.raises(InvalidConfig, match=words):
        resolve(asked)
