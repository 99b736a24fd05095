"""Rows left out stay where they are under AdamW, and rows that come back have their own bias correction."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from trainer.updates.row_mask import freeze_others, mask_gradients, masked_step

LR = 0.1


def make(rows: int = 4, decay: float = 0.01) -> tuple[nn.Linear, torch.optim.AdamW]:
    torch.manual_seed(0)
    model = nn.Linear(3, rows)
    groups = [{"params": [model.weight], "weight_decay": decay}, {"params": [model.bias], "weight_decay": 0.0}]
    return model, torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.999), foreach=True)


def step_of(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    keep: list[bool],
    counts: dict[str, torch.Tensor],
    **options: str,
) -> Callable[[torch.Tensor], None]:
    def step(grad: torch.Tensor) -> None:
        model.weight.grad, model.bias.grad = grad.clone(), grad[:, 0].clone()  # type: ignore[union-attr]
        rows = {"weight": torch.tensor(keep), "bias": torch.tensor(keep)}
        mask_gradients(model, rows)
        masked_step(model, optimizer, rows, options.get("moments", "freeze"), counts, optimizer.step)  # type: ignore[arg-type]

    return step


def test_the_cards_gradient_of_ones() -> None:
    model, _ = make()
    model.weight.grad = torch.ones(4, 3)
    kept = mask_gradients(model, {"weight": torch.tensor([True, False, True, False])})
    assert model.weight.grad.norm(dim=1).tolist() == pytest.approx([1.732051, 0, 1.732051, 0], abs=1e-6)
    assert kept["weight"] == pytest.approx(0.707107, abs=1e-6)


def test_a_gradient_of_zero_moves_the_weight_and_a_masked_step_does_not() -> None:
    weight = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([weight], lr=LR, weight_decay=0.0, foreach=True)
    for grad in (1.0, 0.0):
        weight.grad = torch.tensor([grad])
        optimizer.step()
    assert float(weight.detach()) == pytest.approx(-0.167006, abs=1e-6)  # the leak
    model, adam = make(decay=0.0)
    with torch.no_grad():
        model.weight.zero_()
    counts: dict[str, torch.Tensor] = {}
    step_of(model, adam, [True] * 4, counts)(torch.ones(4, 3))
    assert model.weight[1].tolist() == pytest.approx([-0.1] * 3, abs=1e-6)
    before = model.weight.detach().clone()
    step_of(model, adam, [True, False, True, True], counts)(torch.ones(4, 3))
    assert torch.equal(model.weight[1], before[1])
    assert not torch.equal(model.weight[0], before[0])


def test_a_row_that_was_left_out_goes_on_as_if_those_steps_had_not_been() -> None:
    """Frozen moments: each row's path is plain AdamW over the steps in which it was chosen."""
    generator = torch.Generator().manual_seed(1)
    grads = [torch.randn(4, 3, generator=generator) for _ in range(6)]
    keeps = [[True, True, False, False], [False, True, True, False], [True, False, True, False], [True] * 4,
             [False, True, False, True], [True, True, True, False]]  # fmt: skip
    model, optimizer = make()
    counts: dict[str, torch.Tensor] = {}
    for grad, keep in zip(grads, keeps, strict=True):
        step_of(model, optimizer, keep, counts)(grad)
    for row in range(4):
        alone, adam = make()
        for grad, keep in zip(grads, keeps, strict=True):
            if keep[row]:
                alone.weight.grad, alone.bias.grad = grad.clone(), grad[:, 0].clone()
                adam.step()
        torch.testing.assert_close(model.weight[row], alone.weight[row], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(model.bias[row], alone.bias[row], rtol=1e-5, atol=1e-6)
    assert counts["weight"].tolist() == [sum(keep[row] for keep in keeps) for row in range(4)]


@pytest.mark.parametrize("moments", ["freeze", "keep", "reset"])
def test_with_all_rows_it_is_the_plain_step_bit_for_bit(moments: str) -> None:
    model, optimizer = make()
    plain, adam = make()
    counts: dict[str, torch.Tensor] = {}
    for i in range(4):
        grad = torch.full((4, 3), 0.1 * (i + 1))
        step_of(model, optimizer, [True] * 4, counts, moments=moments)(grad)
        plain.weight.grad, plain.bias.grad = grad.clone(), grad[:, 0].clone()
        adam.step()
    assert torch.equal(model.weight, plain.weight)
    assert torch.equal(model.bias, plain.bias)


def test_moments_of_rows_left_out() -> None:
    first = torch.ones(4, 3)
    found = {}
    for moments in ("freeze", "keep", "reset"):
        model, optimizer = make()
        counts: dict[str, torch.Tensor] = {}
        step_of(model, optimizer, [True] * 4, counts, moments=moments)(first)
        step_of(model, optimizer, [True, False, True, True], counts, moments=moments)(first)
        state = optimizer.state[model.weight]
        found[moments] = (float(state["exp_avg"][1, 0]), float(state["exp_avg_sq"][1, 0]), int(counts["weight"][1]))
    assert found["freeze"] == pytest.approx((0.1, 0.001, 1))
    assert found["keep"] == pytest.approx((0.09, 0.000999, 2))
    assert found["reset"] == (0.0, 0.0, 0)


def test_other_parameters_are_left_alone_where_only_the_rows_are_trained() -> None:
    model, optimizer = make()
    before = model.bias.detach().clone()
    model.weight.grad, model.bias.grad = torch.ones(4, 3), torch.ones(4)
    freeze_others(model, {"weight": torch.ones(4, dtype=torch.bool)})
    optimizer.step()
    assert torch.equal(model.bias, before)
    assert model.bias not in optimizer.state
