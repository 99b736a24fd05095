"""MCPO: the card's numbers, and what it refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainer.advantages.groups import group_mean, group_success, group_zscore
from trainer.advantages.mastery import consolidated
from trainer.contract.config import InvalidConfig
from trainer.core.slots import Scores
from trainer.methods import resolve
from trainer.methods.mcpo import McpoParams
from trainer.objectives.aggregate import Denominators, reduce_term
from trainer.objectives.hinge_kl import MASTERED, HingeKl, hinge, k3
from trainer.testing.replay import story_of


def test_the_hinge_is_silent_within_its_budget_and_continuous() -> None:
    drift = torch.tensor([0.005, 0.01, 0.1, -0.1, 0.5, -0.5], dtype=torch.double, requires_grad=True)
    found = hinge(drift, 0.01)
    assert found.tolist() == pytest.approx([0, 0, 0.00512075, 0.00478758, 0.14867110, 0.10648083], abs=1e-8)
    slope = torch.autograd.grad(found.sum(), drift)[0]
    assert slope.tolist()[:4] == pytest.approx([0, 0, 0.105171, -0.095163], abs=1e-6)
    assert float(k3(torch.tensor(0.01, dtype=torch.double))) == pytest.approx(5.01670842e-05, abs=1e-12)
    assert float(k3(torch.tensor(-0.01, dtype=torch.double))) == pytest.approx(4.98337492e-05, abs=1e-12)
    assert float(found[[0, 2, 3]].detach().mean()) == pytest.approx(0.00330278, abs=1e-8)


def test_a_drift_beyond_all_bounds_stays_finite() -> None:
    assert hinge(torch.tensor([1e4, -1e4]), 0.01).isfinite().all()


@pytest.mark.parametrize(
    ("right", "size", "unbiased", "expected", "weight"),
    [
        (3, 4, False, (0.666667, -2.0), 0.5),
        (7, 8, False, (0.571429, -4.0), 0.5),
        (1, 4, False, (1.732051, -0.577350), 0.433013),
        (2, 4, False, (1.0, -1.0), 0.5),
        (3, 4, True, (0.577350, -1.732051), 0.433013),
        (7, 8, True, (0.534522, -3.741657), 0.467707),
    ],
)
def test_prompts_mostly_right_keep_their_weight(
    right: int, size: int, unbiased: bool, expected: tuple[float, float], weight: float
) -> None:
    reward_N = torch.tensor([1.0] * right + [0.0] * (size - right), dtype=torch.double)
    ids = ["g"] * size
    z_N = group_zscore(reward_N, ids, eps=0, unbiased=unbiased)
    found_N = consolidated(z_N, group_success(reward_N, ids))
    assert found_N.tolist() == pytest.approx([expected[0]] * right + [expected[1]] * (size - right), abs=1e-6)
    assert float(found_N.abs().mean()) / 2 == pytest.approx(weight, abs=1e-6)


@pytest.mark.parametrize(("right", "size"), [(9, 10), (99, 100)])
def test_over_centred_rewards_the_weight_stays_a_quarter(right: int, size: int) -> None:
    reward_N = torch.tensor([1.0] * right + [0.0] * (size - right), dtype=torch.double)
    ids = ["g"] * size
    found_N = consolidated(group_mean(reward_N, ids), group_success(reward_N, ids), centred=True)
    assert float(found_N.abs().mean()) / 2 == pytest.approx(0.25)


def test_mastered_groups_have_no_advantage_and_no_nan() -> None:
    reward_N, ids = torch.ones(4), ["g"] * 4
    assert consolidated(group_zscore(reward_N, ids), group_success(reward_N, ids)).tolist() == [0.0] * 4


def test_without_a_mastered_prompt_the_term_and_its_gradient_are_zero() -> None:
    now = torch.randn(2, 3, requires_grad=True)
    mask = torch.ones(2, 3)
    columns = {MASTERED: torch.zeros(2, 3), "old_logprobs": torch.zeros(2, 3)}
    batch: Any = SimpleNamespace(mask_NT=mask, group_ids=["a", "b"], columns=columns, trajectory_ids=range(2))
    ctx: Any = SimpleNamespace(tally=lambda *_: None)
    config: Any = None
    (term,) = HingeKl(McpoParams(), config).terms(batch, Scores(now, torch.zeros(2, 3)), ctx)
    loss = reduce_term(term, mask, Denominators.of(batch, max_length=3), batch)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert now.grad is not None
    assert float(now.grad.abs().max()) == 0.0


def test_one_update_a_batch_and_filters_of_solved_groups_are_refused(document) -> None:  # type: ignore[no-untyped-def]
    def found(params: dict[str, Any], **algorithm: Any) -> Any:
        section = {"prompts_per_iteration": 4, "num_generations": 4, **algorithm}
        return resolve(document(methods=[{"slug": "mcpo", "params": params}], algorithm=section))

    with pytest.raises(InvalidConfig, match=r"algorithm\.minibatches: found one update a batch"):
        found({}, minibatches=1)
    assert found({}).algorithm.minibatches == 2
    with pytest.raises(InvalidConfig, match=r"algorithm\.zero_variance: found 'drop'"):
        found({}, minibatches=2, zero_variance="drop")
    assert found({"beta": 0}, minibatches=1)
    assert found({}, minibatches=1, num_iterations=2)


def test_a_run_tells_what_it_mastered_and_what_it_kept(run, document, tmp_path) -> None:  # type: ignore[no-untyped-def]
    section = {"prompts_per_iteration": 4, "num_generations": 2, "minibatches": 2}
    assert run(document(methods=[{"slug": "mcpo"}], algorithm=section), tmp_path / "r") == 0
    story = story_of(tmp_path / "r")
    shares = {n: story.scalars[i, n] for i in (1,) for n in ("mcpo/mastered_fraction", "mcpo/failed_fraction")}
    assert all(0 <= v <= 1 for v in shares.values())
    assert (3, "mcpo/one_step_retention") in story.scalars
