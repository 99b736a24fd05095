"""Linear layers of fp32 weights on a processor with AVX-512, by oneDNN where it beats torch's choice.

torch gives fp32 products to MKL, which uses half of the vector width on processors that are not Intel's: oneDNN, which
is in torch too, is twice as fast there and as fast elsewhere. It prepares code for every new shape (0.4 ms), so callers
bring row counts to ``rounded`` ones. Small products stay with MKL, whose calls cost less. Equal up to the order of sums.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

SMALLEST = 1 << 21
"""Multiplications of a product from which oneDNN is the faster one, its calls' cost included."""

_ONEDNN = (
    torch.backends.mkldnn.is_available()
    and torch.backends.cpu.get_cpu_capability() == "AVX512"
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)


def rounded(rows: int) -> int:
    """The next larger of at most 16 row counts between two powers of two."""
    step = 1 << max(0, rows.bit_length() - 5)
    return -(-rows // step) * step


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x @ weightᵀ + bias of (rows, in), (out, in) and (out,), differentiable."""
    if not _worthwhile(x, weight):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        out: torch.Tensor = _Linear.apply(x, weight, bias)
        return out
    return _product(x, weight, bias)


def _worthwhile(x: torch.Tensor, weight: torch.Tensor) -> bool:
    return (
        _ONEDNN
        and x.shape[0] * weight.numel() >= SMALLEST
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
    )


def _product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        return (
            _product(grad, weight.t()) if for_x else None,
            _weight_gradient(grad, x) if for_weight else None,
            grad.sum(0) if for_bias else None,
        )


def _weight_gradient(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """gradᵀ @ x (out, in). The first operand is copied in another order, so it is the narrower one."""
    if grad.shape[1] > x.shape[1]:
        return _product(x.t(), grad.t()).t()
    return _product(grad.t(), x.t())
