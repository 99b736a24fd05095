"""Inverse RL on a group: the sps card's numbers, its direction, and the gate."""

from __future__ import annotations

import pytest
import torch

from trainer.objectives.irl import match, target_distribution

L = torch.tensor([-1.0, -2.0, -4.0], dtype=torch.double)
LENGTH = torch.tensor([2.0, 4.0, 4.0], dtype=torch.double)
R = torch.tensor([1.0, 1.0, 0.0], dtype=torch.double)


@pytest.mark.parametrize(
    ("target", "loss", "gradient"),
    [
        ("reward_boltzmann", 0.122078, (0.237074, -0.208814, -0.028260)),
        ("uniform_distinct", 0.583733, (0.372051, -0.073837, -0.298214)),
        ("correct_uniform", 0.155865, (0.205385, -0.240504, 0.035119)),
    ],
)
def test_loss_and_gradient_are_the_cards(target, loss: float, gradient: tuple[float, ...]) -> None:  # type: ignore[no-untyped-def]
    found = match(L, LENGTH, R, target=target, alpha=0.5)
    assert float(found.kl) == pytest.approx(loss, abs=1e-6)
    assert found.weight.tolist() == pytest.approx(gradient, abs=1e-6)


@pytest.mark.parametrize("score", ["sum", "length_norm"])
@pytest.mark.parametrize("scale", [False, True])
def test_the_weight_is_the_gradient_of_the_kl(score, scale: bool) -> None:  # type: ignore[no-untyped-def]
    logprob = (L * 5).requires_grad_()
    slope = LENGTH.mean() / LENGTH if score == "length_norm" else 1.0
    s = logprob * slope
    if scale:
        s = s / torch.clamp(s.detach().std() / 2, min=1.0)
    q = target_distribution(R, "reward_boltzmann", 0.5)
    (q * (q.log() - s.log_softmax(0))).sum().backward()
    found = match(L * 5, LENGTH, R, target="reward_boltzmann", alpha=0.5, score=score, scale=scale)
    assert found.weight.tolist() == pytest.approx(logprob.grad.tolist(), abs=1e-9)


def test_length_normalised_p_is_the_cards() -> None:
    found = match(L, LENGTH, R, target="uniform_distinct", alpha=0.5, score="length_norm")
    assert found.p.tolist() == pytest.approx([0.456856, 0.456856, 0.086289], abs=1e-6)


def test_one_demonstration_moves_nothing() -> None:
    found = match(L[:1], LENGTH[:1], R[:1], target="reward_boltzmann", alpha=0.5, scale=True)
    assert float(found.kl) == 0.0
    assert found.weight.tolist() == [0.0]


def test_descent_raises_what_the_target_prefers() -> None:
    p = torch.tensor([0.25, 0.75], dtype=torch.double)
    reward = torch.tensor([1.0, 0.0], dtype=torch.double)
    found = match(p.log(), torch.ones(2, dtype=torch.double), reward, target="correct_uniform", alpha=0.5)
    assert float(found.kl) == pytest.approx(1.386294, abs=1e-6)
    assert found.weight[0] < 0 < found.weight[1]


def test_long_answers_keep_more_than_one_sequence_in_play() -> None:
    s = torch.linspace(-40, 0, 16, dtype=torch.double)
    length = torch.full((16,), 1000.0, dtype=torch.double)
    reward = torch.ones(16, dtype=torch.double)
    plain = match(s, length, reward, target="uniform_distinct", alpha=0.5)
    scaled = match(s, length, reward, target="uniform_distinct", alpha=0.5, scale=True)
    assert float(1 / (plain.p**2).sum()) < 1.5 < 3 < float(1 / (scaled.p**2).sum())


def test_correct_uniform_without_a_correct_one_is_empty() -> None:
    assert target_distribution(torch.zeros(3), "correct_uniform", 0.5).tolist() == [0.0, 0.0, 0.0]
