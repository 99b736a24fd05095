"""Own differentiable forward of Llama and Qwen2 that computes each distinct prompt once and no padding at all.

Linear layers run on a flat list of real tokens: those of the distinct prompts, then those of all completions. Only
attention sees padded tensors; a completion attends to its prompt's keys and its own. Gradients through shared prompts
are the sums over their completions, as they must be. Equal to the model's forward up to the order of sums.

Shape suffixes: ``_M`` distinct prompt, ``_N`` sequence, ``_T`` completion position, ``_F`` flat token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable

from trainer.policy.products import linear, rounded


class _UnitNorm(torch.autograd.Function):
    """x / rms(x) · weight over the last dimension; saves x and one number a row."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        inverse = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        unit = x * inverse
        ctx.save_for_backward(unit, inverse, weight)
        return unit * weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        unit, inverse, weight = ctx.saved_tensors
        product = grad * unit
        grad_weight = product.sum(0)
        along = torch.mv(product, weight).div_(unit.shape[-1])[:, None]
        inner = grad * weight
        return inner.addcmul_(unit, along, value=-1).mul_(inverse), grad_weight, None


class _GatedUnit(torch.autograd.Function):
    """silu(gate) · up of a joined (F, 2 × width) tensor; saves the input only."""

    @staticmethod
    def forward(ctx: Any, joined: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(joined)
        gate, up = joined.chunk(2, -1)
        return F.silu(gate).mul_(up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (joined,) = ctx.saved_tensors
        gate, up = joined.chunk(2, -1)
        out = torch.empty_like(joined)
        grad_gate, grad_up = out.chunk(2, -1)
        sigmoid = torch.sigmoid(gate)
        silu = gate * sigmoid
        torch.mul(grad, silu, out=grad_up)
        # d silu = sigmoid + silu · (1 - sigmoid)
        torch.mul(grad, up, out=grad_gate)
        grad_gate.mul_(sigmoid.add_(silu.addcmul_(silu, sigmoid, value=-1)))
        return out


class _Rotate(torch.autograd.Function):
    """Rotary embedding of the first ``count`` heads of (F, heads, D) by cosines and sines (F, 1, D/2), the others as
    they are; backward turns the other way."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, count: int) -> torch.Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.count = count
        return _turn(x, cos, sin, count, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        cos, sin = ctx.saved_tensors
        return _turn(grad, cos, sin, ctx.count, -1), None, None, None


def _turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, count: int, sign: int) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    (a, b), (first, second) = x[:, :count].chunk(2, -1), out[:, :count].chunk(2, -1)
    torch.mul(a, cos, out=first)
    torch.mul(b, cos, out=second)
    first.addcmul_(b, sin, value=-sign)
    second.addcmul_(a, sin, value=sign)
    out[:, count:] = x[:, count:]
    return out


class _Spread(torch.autograd.Function):
    """Flat rows to padded rows; ``source`` names a flat row for every padded one, ``slots`` (F,) the real places.

    Padding holds some real row, which costs less than zeros. Its gradient is dropped: nothing real attends to it.
    """

    @staticmethod
    def forward(ctx: Any, flat: torch.Tensor, source: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(slots)
        return flat.index_select(0, source)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (slots,) = ctx.saved_tensors
        return grad.index_select(0, slots), None, None


class _Gather(torch.autograd.Function):
    """Padded rows to flat rows: the reverse of ``_Spread``."""

    @staticmethod
    def forward(ctx: Any, padded: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(slots)
        ctx.size = padded.shape[0]
        return padded.index_select(0, slots)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        (slots,) = ctx.saved_tensors
        return grad.new_zeros(ctx.size, *grad.shape[1:]).index_copy_(0, slots, grad), None


class _Pick(torch.autograd.Function):
    """Rows of a tensor by index, repeats allowed. Backward adds up by a product with the 0/1 matrix of the index where
    that is small, which beats torch's scatter."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(index)
        ctx.size = x.shape[0]
        return x.index_select(0, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        (index,) = ctx.saved_tensors
        if ctx.size > 64:
            return grad.new_zeros(ctx.size, *grad.shape[1:]).index_add_(0, index, grad), None
        members = (torch.arange(ctx.size, device=index.device)[:, None] == index).to(grad.dtype)
        return (members @ grad.flatten(1)).view(ctx.size, *grad.shape[1:]), None


def _project(x: torch.Tensor, modules: list[nn.Module]) -> torch.Tensor:
    """Outputs of several projections side by side; plain Linears are joined into one product, adapters are called."""
    if any(type(m) is not nn.Linear for m in modules):
        return torch.cat([m(x) for m in modules], -1)
    linears: list[Any] = modules
    bias = None
    if any(m.bias is not None for m in linears):
        bias = torch.cat([m.weight.new_zeros(m.out_features) if m.bias is None else m.bias for m in linears])
    return linear(x, torch.cat([m.weight for m in linears]) if len(linears) > 1 else linears[0].weight, bias)


@dataclass(frozen=True)
class _Part:
    """Where the flat tokens [begin, end) lie in a padded (rows, width) grid."""

    begin: int
    end: int
    rows: int
    width: int
    slots: torch.Tensor
    source: torch.Tensor

    @classmethod
    def of(cls, lengths: torch.Tensor, begin: int) -> _Part:
        rows, width = len(lengths), int(lengths.max()) if len(lengths) else 0
        real = torch.arange(width, device=lengths.device)[None] < lengths[:, None]
        slots = real.flatten().nonzero()[:, 0]
        source = (real.flatten().cumsum(0) - 1).clamp(min=0)
        return cls(begin, begin + len(slots), rows, width, slots, source)

    @property
    def full(self) -> bool:
        return len(self.slots) == self.rows * self.width

    def spread(self, flat: torch.Tensor) -> torch.Tensor:
        own = flat[self.begin : self.end]
        padded = own if self.full else _Spread.apply(own, self.source, self.slots)
        return padded.view(self.rows, self.width, *flat.shape[1:])

    def gather(self, padded: torch.Tensor) -> torch.Tensor:
        flat = padded.flatten(0, 1)
        return flat if self.full else _Gather.apply(flat, self.slots)


def target_states(
    model: Any, prompts_MP: torch.Tensor, prompt_len_M: torch.Tensor, prompt_of_N: torch.Tensor,
    ids_NT: torch.Tensor, length_N: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """Last-layer states, after the final norm, that predict each real completion token: (F, hidden), row-major order.

    ``prompts_MP`` and ``ids_NT`` are right-padded with lengths ≥ 1 and ≥ 0; ``prompt_of_N`` names each row's prompt.
    """
    base, device = model.model, ids_NT.device
    prompt = _Part.of(prompt_len_M, 0)
    # The last token of a completion predicts nothing that is scored, so it is no input.
    inner_N = (length_N - 1).clamp(min=0)
    own = _Part.of(inner_N, prompt.end)
    prompt_ids, own_ids = prompts_MP[:, : prompt.width].flatten(), ids_NT[:, : own.width].flatten()
    # Rows behind the real ones bring their number to a rounded one; nothing reads them.
    spare = rounded(own.end) - own.end
    tokens = torch.cat([prompt_ids[prompt.slots], own_ids[own.slots], own_ids.new_zeros(spare)])
    column = torch.arange(max(prompt.width, own.width), device=device)
    offset = (prompt_len_M[prompt_of_N][:, None] + column[None, : own.width]).flatten()[own.slots]
    positions = torch.cat([column[: prompt.width].repeat(prompt.rows)[prompt.slots], offset, column.new_zeros(spare)])
    x = base.embed_tokens(tokens)
    cos, sin = base.rotary_emb(x[None], positions[None])
    half = cos.shape[-1] // 2
    cos, sin = cos[0, :, None, :half], sin[0, :, None, :half]
    # A completion's query sees its prompt's real columns and its own columns up to itself.
    before = column[None, : prompt.width] < prompt_len_M[prompt_of_N][:, None]
    causal = column[: own.width, None] >= column[None, : own.width]
    seen = torch.cat(
        [before[:, None].expand(-1, own.width, -1), causal[None].expand(own.rows, -1, -1)], -1
    )[:, None]  # fmt: skip
    bias = torch.zeros(seen.shape, dtype=x.dtype, device=device).masked_fill_(~seen, -torch.inf)
    heads, kv = model.config.num_attention_heads, model.config.num_key_value_heads
    for layer in base.layers:
        attention, mlp = layer.self_attn, layer.mlp
        dim = attention.head_dim
        norm = layer.input_layernorm
        unit = _UnitNorm.apply(x, norm.weight, norm.variance_epsilon)
        joined = _project(unit, [attention.q_proj, attention.k_proj, attention.v_proj]).view(len(tokens), -1, dim)
        turned = _Rotate.apply(joined, cos, sin, heads + kv)
        q_p, k_p, v_p = prompt.spread(turned).transpose(1, 2).split([heads, kv, kv], 1)
        mixed = [prompt.gather(_attend(q_p, k_p, v_p, None).transpose(1, 2))]
        rest = turned.new_zeros(spare, heads, dim)
        if own.width:
            q, k, v = own.spread(turned).transpose(1, 2).split([heads, kv, kv], 1)
            k = torch.cat([_Pick.apply(k_p, prompt_of_N), k], 2)
            v = torch.cat([_Pick.apply(v_p, prompt_of_N), v], 2)
            mixed.append(own.gather(_attend(q, k, v, bias).transpose(1, 2)))
        x = x + _project(torch.cat([*mixed, rest]).flatten(1), [attention.o_proj])
        norm = layer.post_attention_layernorm
        unit = _UnitNorm.apply(x, norm.weight, norm.variance_epsilon)
        x = x + torch.cat([_feed_forward(mlp, part) for part in unit.split(_rows(mlp))])
    # The state before completion token 0 is the prompt's last, before token t > 0 that of token t - 1.
    ends = prompt_len_M.cumsum(0)[prompt_of_N] - 1
    begins = prompt.end + inner_N.cumsum(0) - inner_N
    width = ids_NT.shape[1]
    source = begins[:, None] + torch.arange(width, device=device)[None] - 1
    source[:, :1] = ends[:, None]
    real = torch.arange(width, device=device)[None] < length_N[:, None]
    return _UnitNorm.apply(_Pick.apply(x, source[real]), base.norm.weight, base.norm.variance_epsilon)


def _rows(mlp: Any) -> int:
    """Rows whose feed-forward states stay below 16 MiB: the processor's cache serves them better, and the C library asks
    the system for every larger block anew."""
    return max(1, (1 << 22) // (2 * mlp.config.intermediate_size))


def _feed_forward(mlp: Any, unit: torch.Tensor) -> torch.Tensor:
    return _project(_GatedUnit.apply(_project(unit, [mlp.gate_proj, mlp.up_proj])), [mlp.down_proj])


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Attention of (rows, heads, T, D) queries; causal without a bias."""
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=bias, is_causal=bias is None, enable_gqa=q.shape[1] != k.shape[1]
    )
