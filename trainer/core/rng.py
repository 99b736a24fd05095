"""Counter-based randomness: every draw is a pure function of named coordinates, never of what ran before.

``key`` turns coordinates (run seed, scope, policy, purpose, iteration, prompt uid, draw, sample, node …) into 64 bits,
``uniforms`` turns keys and positions into numbers. A sample's numbers therefore do not depend on its batch, and a
resumed run needs no generator state. torch is imported only when tensors are asked for.
"""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_MASK = 0xFFFFFFFFFFFFFFFF


def key(*parts: str | int) -> int:
    """64-bit stable hash of the parts, in 0 … 2**64 - 1; equal on every machine and Python version.

    Parts are strings or ints of any size; order, type and boundaries count: ``("ab", "c")``, ``("a", "bc")`` and
    ``(1,)``, ``("1",)`` have different keys. BLAKE2b with an 8-byte digest.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, str | int):
            raise TypeError(f"rng.key takes str and int parts, found {type(part).__name__}: {part!r}")
        data = part.encode() if isinstance(part, str) else b"%d" % part
        digest.update(b"%c%d:" % (b"s" if isinstance(part, str) else b"i", len(data)))
        digest.update(data)
    return int.from_bytes(digest.digest(), "little")


def signed(key_64: int) -> int:
    """The same 64 bits as a two's-complement int64, which is what a torch tensor can hold."""
    return key_64 - (1 << 64) if key_64 >> 63 else key_64


def uniform(key_64: int, position: int) -> float:
    """The number in [0, 1) at ``position`` of a key's stream, in plain Python: the reference of ``uniforms``."""
    z = (key_64 + (position + 1) * _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * _MIX_1) & _MASK
    z = ((z ^ (z >> 27)) * _MIX_2) & _MASK
    z ^= z >> 31
    return (z >> 11) * 2.0**-53


def uniforms(keys: torch.Tensor, position: torch.Tensor | int) -> torch.Tensor:
    """Uniform numbers in [0, 1), float64, one per broadcast pair of int64 ``keys`` (see ``signed``) and ``position``.

    The splitmix64 output function (Steele, Lea and Flood, 2014) at counter ``position + 1``. Tensor products of int64
    wrap, as the function needs; torch's right shift is arithmetic, so the sign bits are masked off after it.
    """
    if isinstance(position, int):
        z = keys + signed(((position + 1) * _GOLDEN) & _MASK)
    else:
        z = keys + (position + 1) * signed(_GOLDEN)
    z = (z ^ ((z >> 30) & (_MASK >> 30))) * signed(_MIX_1)
    z = (z ^ ((z >> 27) & (_MASK >> 27))) * signed(_MIX_2)
    z = z ^ ((z >> 31) & (_MASK >> 31))
    return ((z >> 11) & (_MASK >> 11)).double() * 2.0**-53


def python_rng(*parts: str | int) -> random.Random:
    """A fresh standard-library generator seeded with ``key(*parts)``."""
    return random.Random(key(*parts))
