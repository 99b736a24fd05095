"""Identity of a set of weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import nn

_CHUNK_BYTES = 1 << 24


def weights_hash(weights: nn.Module | Mapping[str, torch.Tensor]) -> str:
    """SHA-256 hex digest over names, dtypes, shapes and bytes, sorted by name.

    Equal iff the persistent weights are equal bit for bit (a NaN equals itself, -0.0 differs from 0.0). Tensors that
    are one and the same memory (tied weights) count once, under the first of their names. Device and memory layout do
    not matter.
    """
    state = weights.state_dict() if isinstance(weights, nn.Module) else weights
    digest = hashlib.sha256()
    seen: set[tuple[object, ...]] = set()
    for name in sorted(state):
        tensor = state[name].detach()
        place = (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if tensor.numel() and place in seen:
            continue
        seen.add(place)
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        flat = tensor.contiguous().view(-1).view(torch.uint8)
        for start in range(0, flat.numel(), _CHUNK_BYTES):
            digest.update(flat[start : start + _CHUNK_BYTES].cpu().numpy().tobytes())
    return digest.hexdigest()
