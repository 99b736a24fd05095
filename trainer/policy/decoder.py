"""Own inference forward of Llama and Qwen2: packed weights, prefill, and one decoding step over a static cache.

Packing folds what is linear together, once per version of the weights: query, key and value projections into one
matrix, gate and up into another, each norm's weight into the matrix behind it, the attention scale into the queries.
Rotary pairs are moved next to each other, so that a rotation is one complex product; queries and keys move alike, so
their dot products stay. All in fp32.

Rows stand in a grid of U units × S slots. The S rows of a unit share one context, whose cache exists once, so that
attention to it is a product of matrices; each row has a cache of its own for its new tokens. All rows write to the same
column; a row's first column differs, and a bias hides what lies before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import LlamaForCausalLM, Qwen2ForCausalLM

from trainer.policy.adapters import is_plain_lora, weight_of
from trainer.policy.products import linear

HIDDEN = -1e30
"""Attention bias of a hidden column: exp gives exactly 0, and a row of nothing else stays finite, unlike with -inf."""

Cache = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of each layer, (batch, columns, head dimension)."""


@dataclass(frozen=True)
class Grid:
    """What decoding steps read and write. Biases are 0 on real columns and ``HIDDEN`` elsewhere.

    ``context`` has batch U × kv heads and P columns, with ``context_bias`` (U × kv heads, 1, P); ``own`` has batch
    U × kv heads × S, with ``own_bias`` (U × kv heads × S, 1, columns).
    """

    units: int
    slots: int
    context: Cache
    context_bias: torch.Tensor
    own: Cache
    own_bias: torch.Tensor


def why_not_lean(model: Any, *, plain_linears: bool = True) -> str | None:
    """The reason why an own forward would not equal the model's, or None where it does.

    ``plain_linears`` also refuses replaced projections that packing would miss: all but plain LoRA.
    """
    if type(model) not in (LlamaForCausalLM, Qwen2ForCausalLM):
        return f"architecture {type(model).__name__} has no own forward"
    config = model.config
    if config.hidden_act != "silu":
        return f"hidden_act is {config.hidden_act!r}, not silu"
    rope = model.model.rotary_emb.rope_type
    if rope not in ("default", "linear", "llama3"):
        return f"rotary embedding {rope!r} depends on the sequence length"
    if getattr(config, "use_sliding_window", False) or "sliding_attention" in (
        getattr(config, "layer_types", None) or ()
    ):
        return "sliding-window attention"
    for name, module in model.named_modules():
        if module._forward_hooks or module._forward_pre_hooks:
            return f"module {name or 'model'} has forward hooks"
        projection = name.rsplit(".", 1)[-1].endswith(("_proj", "lm_head"))
        if name.endswith("_proj") and is_plain_lora(module):
            continue
        if plain_linears and projection and type(module) is not nn.Linear:
            return f"module {name} is a {type(module).__name__}, not a plain Linear"
    return None


@dataclass(frozen=True)
class _Layer:
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    out: torch.Tensor
    out_bias: torch.Tensor | None
    gate_up: torch.Tensor
    gate_up_bias: torch.Tensor | None
    down: torch.Tensor
    down_bias: torch.Tensor | None


def _joined_bias(*modules: nn.Linear) -> torch.Tensor | None:
    if all(m.bias is None for m in modules):
        return None
    return torch.cat([torch.zeros_like(m.weight[:, 0]) if m.bias is None else m.bias for m in modules]).float()


class Decoder:
    """A packed copy of a Llama or Qwen2 model's weights, adapters added, at the moment of construction (see
    ``why_not_lean``)."""

    @torch.inference_mode()
    def __init__(self, model: Any) -> None:
        config = model.config
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.dim: int = model.model.layers[0].self_attn.head_dim
        self.hidden: int = config.hidden_size
        self.eps: float = config.rms_norm_eps
        rotary = model.model.rotary_emb
        self.frequencies = rotary.inv_freq.float()
        self.rotary_scale = float(rotary.attention_scaling)
        self.embedding = model.get_input_embeddings().weight.float()
        self.head = (model.get_output_embeddings().weight * model.model.norm.weight).float()
        self.head_bias = _joined_bias(model.get_output_embeddings())
        self.device = self.embedding.device
        self._eps = torch.full((1, 1), self.eps, device=self.device)
        # Unit complex numbers (positions, D/2) that rotate the pairs of a head; see ``reserve``.
        self._cis = torch.empty(0, self.dim // 2, dtype=torch.complex64, device=self.device)
        self.layers = [self._pack(layer) for layer in model.model.layers]

    def _pack(self, layer: Any) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        weight = torch.cat([weight_of(p) for p in projections]).float()
        bias = _joined_bias(*projections)
        # Row j of the packed matrix is row order[j]: rotary partners i and i + D/2 become neighbours, values stay.
        rotated = (self.heads + self.kv_heads) * self.dim
        order = torch.arange(weight.shape[0], device=self.device)
        order[:rotated] = order[:rotated].view(-1, 2, self.dim // 2).transpose(1, 2).reshape(-1)
        scale = torch.ones(weight.shape[0], 1, device=self.device)
        scale[: self.heads * self.dim] = attention.scaling
        gate_up = torch.cat([weight_of(mlp.gate_proj), weight_of(mlp.up_proj)]).float()
        return _Layer(
            qkv=weight[order] * scale * layer.input_layernorm.weight.float(),
            qkv_bias=None if bias is None else bias[order] * scale[:, 0],
            out=weight_of(attention.o_proj).float(),
            out_bias=_joined_bias(attention.o_proj),
            gate_up=gate_up * layer.post_attention_layernorm.weight.float(),
            gate_up_bias=_joined_bias(mlp.gate_proj, mlp.up_proj),
            down=weight_of(mlp.down_proj).float(),
            down_bias=_joined_bias(mlp.down_proj),
        )

    @property
    def kv_bytes(self) -> int:
        """Cache bytes of one row and one column, all layers."""
        return len(self.layers) * 2 * self.kv_heads * self.dim * 4

    def _unit(self, x: torch.Tensor) -> torch.Tensor:
        """Root-mean-square normalisation without weight (it sits in the next matrix)."""
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x * torch.addcmul(self._eps, norm, norm, value=1.0 / self.hidden).rsqrt_()

    def reserve(self, positions: int) -> None:
        """Make rotations for positions 0 … positions - 1 ready; ``prefill`` and ``step`` stay below that."""
        if positions > self._cis.shape[0]:
            angle = torch.outer(torch.arange(positions, device=self.device).float(), self.frequencies)
            self._cis = torch.polar(torch.full_like(angle, self.rotary_scale), angle)

    def _feed_forward(self, x: torch.Tensor, layer: _Layer) -> torch.Tensor:
        gate, up = linear(self._unit(x), layer.gate_up, layer.gate_up_bias).chunk(2, -1)
        return x.add_(linear(F.silu(gate).mul_(up), layer.down, layer.down_bias))

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Next-token logits (R, V) of last-layer states (R, hidden)."""
        return linear(self._unit(x), self.head, self.head_bias)

    @torch.inference_mode()
    def prefill(self, contexts: list[tuple[int, ...]]) -> tuple[torch.Tensor, Cache]:
        """Logits (U, V) after each of U contexts, and their cache right-aligned in (U × kv heads, longest, D)."""
        count, width = len(contexts), max(map(len, contexts))
        ids = torch.zeros(count, width, dtype=torch.long)
        for row, context in enumerate(contexts):
            ids[row, width - len(context) :] = torch.tensor(context)
        start = torch.tensor([width - len(c) for c in contexts], device=self.device)[:, None]
        column = torch.arange(width, device=self.device)
        cis = self._cis[(column - start).clamp_(min=0)].unsqueeze(-2)
        seen = (column[None, None, :] <= column[None, :, None]) & (column[None, None, :] >= start[:, :, None])
        bias = torch.zeros(count, 1, width, width, device=self.device).masked_fill_(~seen[:, None], HIDDEN)
        x = F.embedding(ids.to(self.device), self.embedding).view(-1, self.hidden)
        cache: Cache = []
        total = self.heads + self.kv_heads
        for layer in self.layers:
            mixed = linear(self._unit(x), layer.qkv, layer.qkv_bias).view(count, width, -1, self.dim)
            pairs = torch.view_as_complex(mixed[:, :, :total].unflatten(-1, (-1, 2)))
            turned = torch.view_as_real(pairs * cis).flatten(-2).transpose(1, 2)
            keys, values = turned[:, self.heads :].contiguous(), mixed[:, :, total:].transpose(1, 2).contiguous()
            seen_values = F.scaled_dot_product_attention(
                turned[:, : self.heads], keys, values, attn_mask=bias, scale=1.0, enable_gqa=self.heads != self.kv_heads
            )
            x += linear(seen_values.transpose(1, 2).reshape(count * width, -1), layer.out, layer.out_bias)
            x = self._feed_forward(x, layer)
            cache.append((keys.view(-1, width, self.dim), values.view(-1, width, self.dim)))
        return self.logits(x.view(count, width, -1)[:, -1]), cache

    def step(self, tokens_R: torch.Tensor, positions_R: torch.Tensor, grid: Grid, column: int) -> torch.Tensor:
        """Logits (R, V) after one more token a row (rows unit by unit), written to ``column`` of the rows' own caches.

        To be called in inference mode.
        """
        units, slots, kv, dim = grid.units, grid.slots, self.kv_heads, self.dim
        rows, group, width = units * slots, self.heads // kv, column + 1
        cis = self._cis[positions_R].view(units, 1, slots, -1)
        seen_context = grid.context_bias.shape[2]
        own_bias = grid.own_bias[:, :, :width]
        query = torch.empty(units, kv, slots, group, dim // 2, dtype=cis.dtype, device=self.device)
        flat_query = torch.view_as_real(query).view(units * kv, slots * group, dim)
        own_query = flat_query.view(-1, group, dim)
        x = F.embedding(tokens_R, self.embedding)
        for layer, (context_keys, context_values), (keys, values) in zip(
            self.layers, grid.context, grid.own, strict=True
        ):
            mixed = linear(self._unit(x), layer.qkv, layer.qkv_bias).view(units, slots, -1, dim)
            pairs = torch.view_as_complex(mixed.unflatten(-1, (-1, 2))).transpose(1, 2)
            q = pairs[:, : self.heads].view(units, kv, group, slots, -1).transpose(2, 3)
            torch.mul(q, cis.unsqueeze(3), out=query)
            slot = torch.view_as_complex(keys.view(units, kv, slots, -1, dim // 2, 2)[:, :, :, column])
            torch.mul(pairs[:, self.heads : self.heads + kv], cis, out=slot)
            values.view(units, kv, slots, -1, dim)[:, :, :, column] = mixed[:, :, self.heads + kv :].transpose(1, 2)
            to_context = torch.baddbmm(grid.context_bias, flat_query, context_keys.transpose(1, 2))
            to_own = torch.baddbmm(own_bias, own_query, keys[:, :width].transpose(1, 2))
            weights = torch.cat([to_context.view(-1, group, seen_context), to_own], -1).softmax(-1)
            by_unit = weights.view(units * kv, slots * group, -1)
            seen = torch.bmm(by_unit[:, :, :seen_context], context_values).view(-1, group, dim)
            seen.baddbmm_(weights[:, :, seen_context:], values[:, :width])
            seen = seen.view(units, kv, slots, group * dim).transpose(1, 2).reshape(rows, -1)
            x = self._feed_forward(x.add_(linear(seen, layer.out, layer.out_bias)), layer)
        return self.logits(x)
