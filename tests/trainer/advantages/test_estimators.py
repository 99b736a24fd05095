"""Base advantages: the reference's numbers, what no verdict and no variance give, and masks that carry through."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
import torch

from trainer.advantages import groups
from trainer.advantages.estimators import ESTIMATORS, Estimate, Outcome
from trainer.advantages.gae import gae
from trainer.advantages.whitening import discounted_returns, whiten
from trainer.contract.algorithm import GROUP_ADVANTAGES, AdvantageName, AlgorithmSection

D = torch.double


def masks(*lengths: int) -> torch.Tensor:
    return (torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]).to(D)


def outcome(
    rewards: list[float], ids: list[str], mask_NT: torch.Tensor | None = None, **more: Any
) -> tuple[Outcome, torch.Tensor]:
    mask_NT = masks(*[2] * len(rewards)) if mask_NT is None else mask_NT
    more = {"penalty_NT": torch.zeros_like(mask_NT), **more}
    return Outcome(torch.tensor(rewards, dtype=D), ids, mask_NT, **more), mask_NT


def estimate(name: str, rewards: list[float], ids: list[str], mask_NT: Any = None, **settings: Any) -> Estimate:
    own = {"penalty_NT", "value_NT", "memory"}
    more = {k: settings.pop(k) for k in list(settings) if k in own}
    x, _ = outcome(rewards, ids, mask_NT, **more)
    return ESTIMATORS[name](x, AlgorithmSection(advantage=name, **settings))


def test_the_table_has_every_name_that_a_configuration_may_hold() -> None:
    assert set(ESTIMATORS) == set(get_args(AdvantageName))
    assert set(ESTIMATORS) > GROUP_ADVANTAGES


ONE, GROUP = [1.0, 0.0, 0.0, 0.0], ["x"] * 4


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("group_zscore", {}, [1.499997, -0.499999, -0.499999, -0.499999]),
        ("group_zscore", {"adv_eps": 1e-4}, [1.499700, -0.499900, -0.499900, -0.499900]),
        ("group_zscore", {"std_unbiased": False}, [1.732047, -0.577349, -0.577349, -0.577349]),
        ("batch_zscore", {"adv_eps": 1e-4}, [1.499700, -0.499900, -0.499900, -0.499900]),
        ("leave_one_out", {}, [1.0, -0.333333, -0.333333, -0.333333]),
        ("group_mean", {}, [0.75, -0.25, -0.25, -0.25]),
        ("length_weighted", {}, [0.75, -0.25, -0.25, -0.25]),
        ("reinforce", {"baseline": "none"}, ONE),
        ("reinforce", {"baseline": "batch"}, [0.75, -0.25, -0.25, -0.25]),
        ("reinforce", {"baseline": "moving"}, ONE),
    ],
)
def test_advantages_have_their_known_values(name: str, settings: dict[str, Any], expected: list[float]) -> None:
    assert estimate(name, ONE, GROUP, **settings).advantage.tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", sorted(GROUP_ADVANTAGES))
@pytest.mark.parametrize("value", [1.0, 0.3, 0.1 + 0.2])
def test_a_group_without_variance_has_advantages_of_exactly_zero(name: str, value: float) -> None:
    found = estimate(name, [value] * 8, ["x"] * 8).advantage
    assert found.unique().tolist() == [0.0]


@pytest.mark.parametrize("name", sorted(GROUP_ADVANTAGES))
def test_a_group_of_one_has_an_advantage_of_zero(name: str) -> None:
    assert estimate(name, [0.7], ["alone"]).advantage.unique().tolist() == [0.0]


def test_the_batch_std_is_over_the_rewards_of_all_groups() -> None:
    rewards = [1.0, 0.0, 3.0, 3.0, 2.0, 0.0]
    found = estimate("batch_zscore", rewards, ["a", "a", "b", "b", "c", "c"], adv_eps=0.0).advantage
    std = torch.tensor(rewards, dtype=D).std()
    assert found.tolist() == pytest.approx([x / float(std) for x in (0.5, -0.5, 0, 0, 1, -1)])


def test_opo_weighs_the_baseline_by_length() -> None:
    found = estimate("length_weighted", [1.0, 0.0, 0.0], ["x"] * 3, masks(6, 1, 3)).advantage
    assert found.tolist() == pytest.approx([0.4, -0.6, -0.6])


def test_the_moving_baseline_is_used_before_the_batch_moves_it() -> None:
    memory: dict[str, Any] = {}
    first = estimate("reinforce", [1.0, 0.0], ["x", "y"], memory=memory).advantage
    assert first.tolist() == [1.0, 0.0]
    assert memory == {"baseline": pytest.approx(0.05)}
    second = estimate("reinforce", [1.0, math.nan], ["x", "y"], memory=memory).advantage
    assert second.tolist() == pytest.approx([0.95, 0.0])
    assert memory["baseline"] == pytest.approx(0.9 * 0.05 + 0.1)
    estimate("reinforce", [math.nan], ["x"], memory=memory, mask_NT=masks(2))
    assert memory["baseline"] == pytest.approx(0.9 * 0.05 + 0.1)


def test_reinforce_plus_plus_whitens_returns_over_all_tokens() -> None:
    mask = masks(1, 2, 2, 3)
    found = estimate("whitened_return", [1, 0, 1, 1], list("abcd"), mask).advantage
    expected = torch.tensor([0.540062, -1.620185, 0.540062, 0.540062], dtype=D)[:, None] * mask
    assert torch.allclose(found, expected, atol=1e-6)


def test_reinforce_plus_plus_with_a_baseline_takes_the_group_mean_off_first() -> None:
    mask = masks(1, 2, 2, 3)
    found = estimate("whitened_group_mean", [1, 0, 1, 1], ["a", "a", "b", "b"], mask).advantage
    expected = torch.tensor([1.755426, -1.365332, 0.195047, 0.195047], dtype=D)[:, None] * mask
    assert torch.allclose(found, expected, atol=1e-6)


def test_whitening_a_single_token_is_refused() -> None:
    with pytest.raises(ValueError, match="single trained token"):
        whiten(torch.ones(1, 3), masks(1).expand(1, 3) * torch.tensor([[1.0, 0.0, 0.0]]))
    assert whiten(torch.ones(2, 3), torch.zeros(2, 3)).tolist() == [[0.0] * 3] * 2


R = torch.tensor([[0.0, 0.0, 1.0]], dtype=D)
V = torch.tensor([[0.5, 0.6, 0.7]], dtype=D)


def test_gae_has_its_known_values() -> None:
    advantage, returns = gae(R, V, torch.ones_like(R), gamma=1.0, lam=0.95)
    assert advantage[0].tolist() == pytest.approx([0.46575, 0.385, 0.3])
    assert returns[0].tolist() == pytest.approx([0.96575, 0.985, 1.0])
    assert whiten(advantage, torch.ones_like(R))[0].tolist() == pytest.approx([0.991344, 0.017092, -1.008436], abs=1e-6)


def test_gae_passes_over_tokens_that_are_not_trained() -> None:
    reward = torch.tensor([[0.0, 0.0, 0.0, 1.0]], dtype=D)
    value = torch.tensor([[0.5, 9.0, 0.6, 0.7]], dtype=D)
    mask = torch.tensor([[1.0, 0.0, 1.0, 1.0]], dtype=D)
    for gamma in (1.0, 0.9):
        advantage, returns = gae(reward, value, mask, gamma=gamma, lam=0.95)
        plain, plain_returns = gae(R, V, torch.ones_like(R), gamma=gamma, lam=0.95)
        assert advantage[0, [0, 2, 3]].tolist() == pytest.approx(plain[0].tolist())
        assert returns[0, [0, 2, 3]].tolist() == pytest.approx(plain_returns[0].tolist())


def test_returns_discount_by_trained_tokens_only() -> None:
    reward = torch.tensor([[0.0, 5.0, 0.0, 1.0]], dtype=D)
    mask = torch.tensor([[1.0, 0.0, 1.0, 1.0]], dtype=D)
    assert discounted_returns(reward, mask, 0.5)[0].tolist() == [0.25, 0.0, 0.5, 1.0]


def test_the_outcome_lies_on_the_last_trained_token_and_the_penalty_on_each() -> None:
    mask = torch.tensor([[1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], dtype=D)
    x, _ = outcome([1.0, math.nan, 1.0], list("abc"), mask, penalty_NT=torch.full((3, 4), 0.25, dtype=D))
    assert x.reward_NT.tolist() == [[-0.25, 0.0, 0.75, 0.0], [0.0] * 4, [0.0] * 4]
    assert x.penalised_N[0] == 0.5
    assert x.penalised_N[2] == 1.0


def test_kl_in_the_reward_reaches_a_group_advantage_as_the_sum_over_the_sequence() -> None:
    mask = masks(2, 3)
    penalty = 0.05 * torch.tensor([[0.2, -0.1, 9.0], [0.3, 0.3, 0.3]], dtype=D)
    found = estimate("leave_one_out", [1.0, 0.0], ["x", "x"], mask, penalty_NT=penalty).advantage
    assert found.tolist() == pytest.approx([1.04, -1.04])


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_a_row_without_a_verdict_has_no_advantage_and_changes_nobody_elses(name: str) -> None:
    value = {"value_NT": torch.full((4, 3), 0.5, dtype=D)} if name == "gae" else {}
    settings = {"baseline": "batch"} if name == "reinforce" else {}
    rows = [0, 2, 3]
    found = estimate(name, [1.0, math.nan, 0.0, 0.0], GROUP, masks(1, 2, 3, 2), **value, **settings)
    value = {k: v[rows] for k, v in value.items()}
    alone = estimate(name, [1.0, 0.0, 0.0], GROUP[:3], masks(1, 2, 3, 2)[rows], **value, **settings)
    assert float(found.advantage[1].abs().sum()) == 0.0
    assert torch.allclose(found.advantage[rows], alone.advantage, atol=1e-9)
    if found.returns_NT is not None:
        assert bool(found.returns_NT[1].isnan().all())


def test_group_statistics_are_of_ids_and_never_of_positions() -> None:
    mixed = groups.group_mean(torch.tensor([1.0, 0.0, 0.0, 0.0]), ["a", "b", "a", "b"])
    assert mixed.tolist() == [0.5, 0.0, -0.5, 0.0]
