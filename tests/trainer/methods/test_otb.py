"""OTB: the card's numbers, its edges, and what the loop makes of it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.advantages.groups import group_mean, length_weighted
from trainer.advantages.token_baseline import (
    compressed,
    group_baseline,
    score_energy,
    signal_and_noise,
    to_go,
    zero_tail,
)
from trainer.contract.exit_codes import ExitCode
from trainer.testing.replay import story_of

# Three tokens and two trajectories, of three and two tokens.
LOGITS = [[(2.0, 0.0, 0.0), (0.0, 0.0, 0.0), (1.0, 1.0, 0.0)], [(0.0, 0.0, 0.0), (3.0, 0.0, 0.0), (0.0, 0.0, 0.0)]]
ACTIONS = [[0, 1, 2], [2, 0, 0]]
MASK = torch.tensor([[1.0, 1, 1], [1, 1, 0]], dtype=torch.double)
RETURN = torch.tensor([[1.0] * 3, [0.0] * 3], dtype=torch.double)
ONE = ["a", "a"]


def pi() -> torch.Tensor:
    return torch.tensor(LOGITS, dtype=torch.double).softmax(-1)


def energies() -> torch.Tensor:
    p = pi()
    chosen = p.gather(2, torch.tensor(ACTIONS)[:, :, None])[:, :, 0]
    return score_energy(chosen.log(), (p**2).sum(-1)) * MASK


def test_the_energy_is_the_squared_norm_of_the_gradient_by_the_logits() -> None:
    w = energies()
    assert w[0].tolist() == pytest.approx([0.068062, 0.666667, 1.070119], abs=1e-6)
    assert w[1, :2].tolist() == pytest.approx([0.666667, 0.012301], abs=1e-6)
    one_hot = torch.nn.functional.one_hot(torch.tensor(ACTIONS), 3)
    exact = ((one_hot - pi()) ** 2).sum(-1) * MASK
    torch.testing.assert_close(w, exact, atol=1e-12, rtol=0)


def test_cumulative_energies_baselines_and_advantages() -> None:
    weight = energies().cumsum(1)
    assert weight[0].tolist() == pytest.approx([0.068062, 0.734729, 1.804848], abs=1e-6)
    assert weight[1, :2].tolist() == pytest.approx([0.666667, 0.678968], abs=1e-6)
    baseline = group_baseline(RETURN, weight, MASK, ONE)
    assert baseline[0].tolist() == pytest.approx([0.092636, 0.519722, 1.0], abs=1e-6)
    advantage = (RETURN - baseline) * MASK
    assert advantage[0].tolist() == pytest.approx([0.907364, 0.480278, 0.0], abs=1e-6)
    assert advantage[1].tolist() == pytest.approx([-0.092636, -0.519722, 0.0], abs=1e-6)
    tail = (RETURN - zero_tail(baseline, MASK, ONE)) * MASK
    assert tail[0].tolist() == pytest.approx([0.907364, 0.480278, 1.0], abs=1e-6)


def test_the_tail_keeps_its_baseline_where_two_are_longest() -> None:
    mask = torch.tensor([[1.0, 1], [1, 1], [1, 0]], dtype=torch.double)
    baseline = torch.full((3, 2), 0.5, dtype=torch.double)
    assert zero_tail(baseline, mask, ["a"] * 3).tolist() == [[0.5, 0.5]] * 3


def test_the_energy_of_whole_answers_as_weight() -> None:
    final = energies().sum(1, keepdim=True).expand(2, 3)
    assert float(group_baseline(RETURN, final, MASK, ONE)[0, 0]) == pytest.approx(0.726643, abs=1e-6)


def test_equal_weights_are_the_group_mean_and_lengths_are_opo() -> None:
    reward, groups = torch.tensor([1.0, 0.0, 1.0, 0.0]), ["a", "a", "b", "b"]
    mask = torch.tensor([[1.0, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 0]], dtype=torch.double)
    returns = reward.double()[:, None].expand(4, 3)
    plain = group_baseline(returns, torch.ones(4, 3), mask, groups)
    torch.testing.assert_close((returns - plain)[:, 0].float(), group_mean(reward, groups), atol=1e-6, rtol=0)
    lengths = group_baseline(returns, mask.sum(1, keepdim=True).expand(4, 3), mask, groups)
    opo = length_weighted(reward, groups, mask.sum(1))
    torch.testing.assert_close((returns - lengths)[:, 0].float(), opo, atol=1e-6, rtol=0)


@pytest.mark.parametrize("size", [3, 50])
def test_a_uniform_policy_has_the_energy_of_its_vocabulary(size: int) -> None:
    w = score_energy(torch.tensor(-math.log(size)), torch.tensor(1 / size))
    assert float(w) == pytest.approx(1 - 2 / size + 1 / size, abs=1e-6)


def test_a_certain_token_has_no_energy() -> None:
    assert float(score_energy(torch.tensor(0.0), torch.tensor(1.0))) == 0.0


def test_alone_in_its_group_the_advantage_is_the_return() -> None:
    assert group_baseline(RETURN[:1], torch.ones(1, 3), MASK[:1], ["a"]).tolist() == [[0.0] * 3]


def test_equal_returns_leave_nothing() -> None:
    baseline = group_baseline(torch.ones(2, 3), energies().cumsum(1), MASK, ONE)
    assert (baseline * MASK).tolist() == [pytest.approx([1, 1, 1], abs=1e-6), pytest.approx([1, 1, 0], abs=1e-6)]


def test_without_any_energy_the_baseline_is_zero_and_not_undefined() -> None:
    assert group_baseline(RETURN, torch.zeros(2, 3), MASK, ONE).tolist() == [[0.0] * 3] * 2


def test_left_out_its_own_return_the_baseline_is_that_of_the_others() -> None:
    baseline = group_baseline(RETURN, energies().cumsum(1), MASK, ONE, leave_one_out=True)
    assert baseline.tolist() == [pytest.approx([0, 0, 0], abs=1e-6), pytest.approx([1, 1, 1], abs=1e-6)]


def test_tools_between_the_tokens_change_nothing() -> None:
    mask = torch.tensor([[1.0, 0, 0, 1, 1], [0, 1, 1, 0, 0]])
    assert compressed(mask).tolist() == [[0, 0, 0, 1, 2], [0, 0, 1, 0, 0]]


def test_returns_are_what_is_still_to_come() -> None:
    reward, mask = torch.tensor([[1.0, 2, 4, 8]]), torch.tensor([[1.0, 0, 1, 1]])
    assert to_go(reward, mask).tolist() == [[13, 12, 12, 8]]


def test_power_is_split_by_the_gradient() -> None:
    assert signal_and_noise(5.0, 1.0, 5) == (1.0, 1.0)
    assert signal_and_noise(0.5, 1.0, 5) == (1.0, 0.0)
    assert math.isnan(signal_and_noise(1.0, 1.0, 1)[1])


@given(
    st.lists(st.tuples(st.floats(-2, 2), st.floats(0.01, 2), st.integers(1, 4)), min_size=2, max_size=6),
    st.floats(-3, 3),
    st.permutations(range(6)),
)
def test_shifted_rewards_padding_and_order_do_not_matter(
    rows: list[tuple[float, float, int]], shift: float, order: list[int]
) -> None:
    mask = torch.tensor([[float(t < length) for t in range(4)] for _, _, length in rows], dtype=torch.double)
    returns = torch.tensor([[r] * 4 for r, _, _ in rows], dtype=torch.double)
    weight = torch.tensor([[w * (t + 1) for t in range(4)] for _, w, _ in rows], dtype=torch.double)
    groups = ["a"] * len(rows)
    plain = (returns - group_baseline(returns, weight, mask, groups)) * mask
    moved = returns + shift
    torch.testing.assert_close((moved - group_baseline(moved, weight, mask, groups)) * mask, plain, atol=1e-5, rtol=0)
    wide = [torch.nn.functional.pad(x, (0, 2)) for x in (returns, weight, mask)]
    torch.testing.assert_close(((wide[0] - group_baseline(*wide, groups)) * wide[2])[:, :4], plain)
    at = torch.tensor([i for i in order if i < len(rows)])
    mixed = (returns[at] - group_baseline(returns[at], weight[at], mask[at], groups)) * mask[at]
    torch.testing.assert_close(mixed, plain[at])


@pytest.mark.parametrize("baseline", ["token", "mean"])
def test_a_run_logs_its_signals(baseline, run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    asked = document(
        methods=[{"slug": "otb", "params": {"baseline": baseline}}],
        algorithm={"preset": "dr-grpo", "prompts_per_iteration": 4, "num_generations": 4},
        budget={"iterations": 2},
    )
    assert run(asked, tmp_path / "r") == ExitCode.FINISHED
    found = story_of(tmp_path / "r")

    def series(key: str) -> list[float | None]:
        return [found.scalars[iteration, key] for iteration in (1, 2)]

    assert all(0 < (value or 0) < 2 for value in series("otb/w_mean"))
    off = series("otb/baseline_minus_mean")
    assert off == pytest.approx([0, 0], abs=1e-6) if baseline == "mean" else any(off)
    assert all(value is not None for value in series("variance_proxy/total_power"))
    assert series("variance_proxy/signal_strength") == pytest.approx([(g or 0) ** 2 for g in series("grad_norm")])
    assert (2, "otb/baseline_t") in found.figures
