"""Training only some rows of some parameters, under AdamW.

A gradient of zero is not enough: momentum and weight decay would still move the row. So the rows left out get their
weights back after the step, and their moments as asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from trainer.core.errors import ConfigError
from trainer.core.slots import Step, Update

if TYPE_CHECKING:
    from trainer.core.context import Context

Moments = Literal["keep", "freeze", "reset"]
Rows = Mapping[str, torch.Tensor]
"""Name of a parameter → (rows,) bool: which rows may change. Parameters that aren't named are free."""


class MaskedUpdate(Update):
    """An update that trains chosen rows only; who derives from it says which, in `rows`. Everything else is trained as usual,
    or not at all (``others`` False). Logs ``<slug>/rows_updated`` and ``<slug>/masked_row_drift``, which must be 0."""

    slug: str
    moments: Moments = "freeze"
    others: bool = True

    def rows(self, ctx: Context) -> Rows:
        """The rows that may change, for each parameter that is masked."""
        raise NotImplementedError

    def note_kept(self, name: str, share: float, ctx: Context) -> None:
        """Told which share of a masked parameter's gradient is left."""

    def gradients(self, step: Step, ctx: Context) -> None:
        """Masks them, so that the norm that is clipped is that of what is trained."""
        rows = self.rows(ctx)
        for name, share in mask_gradients(ctx.policy.model, rows).items():
            self.note_kept(name, share, ctx)
        if not self.others:
            freeze_others(ctx.policy.model, rows)

    def apply(self, step: Step, proceed: Callable[[], None], ctx: Context) -> None:
        """The optimiser's step on the chosen rows alone."""
        model, rows = ctx.policy.model, self.rows(ctx)
        optimizer = ctx.state.policies["policy"].optimizer
        assert optimizer is not None
        old = {name: model.get_parameter(name).detach().clone() for name in rows}
        masked_step(model, optimizer, rows, self.moments, ctx.state.memory_of(f"{self.slug}_steps"), proceed)
        drift = sum(float((model.get_parameter(n).detach() - old[n])[~keep].abs().sum()) for n, keep in rows.items())
        ctx.tally(f"{self.slug}/masked_row_drift", drift, 1.0)
        ctx.tally(f"{self.slug}/rows_updated", float(sum(int(keep.sum()) for keep in rows.values())), 1.0)


def parameters_of(model: nn.Module, projection: str) -> list[str]:
    """Names of the trained parameters whose row c makes channel c of a projection: weight and bias of a Linear, B of the
    adapter where only that is trained."""
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad and n.startswith(f"{projection}.")}
    rows = [n for n in trained if n.rpartition(".")[2] in ("weight", "bias") and ".lora_A." not in n]
    if not rows:
        raise ConfigError(f"{projection} has no trained weight; choose other targets in policy.lora.targets")
    return rows


def mask_gradients(model: nn.Module, rows: Rows) -> dict[str, float]:
    """Sets the gradient of the rows left out to 0; per parameter which share of the gradient's norm is left (NaN of 0)."""
    kept = {}
    for name, keep in rows.items():
        grad = model.get_parameter(name).grad
        if grad is None:
            continue
        before = float(grad.norm())
        grad[~keep] = 0
        kept[name] = float(grad.norm()) / before if before else float("nan")
    return kept


def freeze_others(model: nn.Module, rows: Rows) -> None:
    """Takes the gradients of all other parameters away, so that the optimiser leaves them alone."""
    for name, parameter in model.named_parameters():
        if name not in rows:
            parameter.grad = None


@torch.no_grad()
def masked_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    rows: Rows,
    moments: Moments,
    counts: dict[str, torch.Tensor],
    proceed: Callable[[], None],
) -> None:
    """``proceed`` (the optimiser's AdamW step), after which the rows left out have the weights of before.

    Their moments are those of before too and their step isn't counted (``freeze``), or zero again (``reset``), or go on
    as with a gradient of 0 (``keep``). ``counts`` holds each row's own number of steps, by parameter, and belongs into a
    checkpoint: the bias correction of a row that was left out for a while is that of its own steps.
    """
    old = {}
    for name in rows:
        parameter = model.get_parameter(name)
        state = optimizer.state.get(parameter) or {}
        zeros = torch.zeros_like(parameter)
        first, second = (state.get(m, zeros).clone() for m in ("exp_avg", "exp_avg_sq"))
        old[name] = (parameter.detach().clone(), first, second)
    proceed()
    groups = {p: g for g in optimizer.param_groups for p in g["params"]}
    for name, keep in rows.items():
        parameter = model.get_parameter(name)
        state = optimizer.state.get(parameter)
        if parameter.grad is None or not state:
            continue
        weight, first, second = old[name]
        steps = int(state["step"])
        count = counts.setdefault(name, torch.full((len(keep),), steps - 1, dtype=torch.long))
        out = ~keep
        count[keep if moments != "keep" else slice(None)] += 1
        parameter[out] = weight[out]
        if moments == "freeze":
            state["exp_avg"][out], state["exp_avg_sq"][out] = first[out], second[out]
        elif moments == "reset":
            state["exp_avg"][out], state["exp_avg_sq"][out] = 0.0, 0.0
            count[out] = 0
        late = keep & (count != steps)
        if bool(late.any()):
            parameter[late] = _adamw_rows(weight[late], state, late, count[late], groups[parameter])


def _adamw_rows(
    weight: torch.Tensor, state: Mapping[str, Any], rows: torch.Tensor, count: torch.Tensor, group: Mapping[str, Any]
) -> torch.Tensor:
    """AdamW of some rows from their old weights and new moments, with the bias correction of their own counts."""
    beta1, beta2 = group["betas"]
    shape = (-1, *[1] * (weight.ndim - 1))
    correction1 = (1 - beta1 ** count.double()).view(shape)
    correction2 = (1 - beta2 ** count.double()).view(shape).sqrt()
    denominator = state["exp_avg_sq"][rows].double().sqrt() / correction2 + group["eps"]
    moved = weight.double() * (1 - group["lr"] * group["weight_decay"])
    return (moved - group["lr"] / correction1 * state["exp_avg"][rows].double() / denominator).to(weight.dtype)
