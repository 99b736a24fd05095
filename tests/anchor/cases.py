"""The tensors and settings on which our losses and those of TRL and verl are compared. Knows none of the three.

Numbers come from the standard library's generator, so that they are the same on every version of torch.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import Any

import torch

ROWS, WIDTH, LONGEST = 6, 7, 16
LENGTHS = (7, 1, 4, 5, 2, 6)


@dataclass(frozen=True)
class Case:
    """``name`` identifies it; ``settings`` are ours, ``theirs`` what the other side is called with. ``shape`` says what is
    peculiar about the tensors."""

    name: str
    settings: dict[str, Any]
    theirs: dict[str, Any]
    shape: str = "ragged"
    seed: int = 0
    pieces: int = 1
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class Tensors:
    """(N, T) all; ``advantage`` (N,) or (N, T). Leaves of the graph: ``now`` and ``entropy``."""

    now: torch.Tensor
    old: torch.Tensor
    reference: torch.Tensor
    sampler: torch.Tensor
    entropy: torch.Tensor
    advantage: torch.Tensor
    mask: torch.Tensor


def tensors(case: Case, dtype: torch.dtype) -> Tensors:
    """Fresh leaves each time. Shapes: ``ragged`` (one row of length 1), ``empty`` (a row without a token), ``holes`` (tool
    answers), ``zero`` (A = 0 in half the rows), ``tokens`` (A per token), ``extreme`` (log-ratios up to ±30)."""
    draw = random.Random(f"{case.name}/{case.seed}")

    def table(scale: float, shift: float = 0.0) -> torch.Tensor:
        rows = [[draw.gauss(0, 1) * scale + shift for _ in range(WIDTH)] for _ in range(ROWS)]
        return torch.tensor(rows, dtype=torch.double)

    now = -table(1.0).abs() - 0.05
    old, reference, sampler = now + table(0.3), now + table(0.2), now + table(0.4)
    entropy = table(1.0).abs()
    advantage = table(1.0)
    mask = (torch.arange(WIDTH)[None] < torch.tensor(LENGTHS)[:, None]).double()
    if case.shape == "empty":
        mask[2] = 0
    if case.shape == "holes":
        mask[0, 2:4] = 0
        mask[3, 0] = 0
    if case.shape == "zero":
        advantage[::2] = 0
    if case.shape == "extreme":
        old[0, :3] = now[0, :3] + torch.tensor([30.0, -30.0, 15.0])
        old[3, :2] = now[3, :2] + torch.tensor([-30.0, 30.0])
    if case.shape == "unscored":
        sampler[1, 0] = sampler[4, 1] = float("nan")
    if case.shape != "tokens":
        advantage = advantage[:, 0]
    made = [x.to(dtype) for x in (now, old, reference, sampler, entropy, advantage, mask)]
    made[0].requires_grad_()
    made[4].requires_grad_()
    return Tensors(*made)


TRL_KINDS: dict[str, dict[str, Any]] = {
    "grpo": {"surrogate": "clip", "aggregation": "seq-mean-token-mean"},
    "bnpo": {"surrogate": "clip", "aggregation": "token-mean"},
    "dr_grpo": {"surrogate": "clip", "aggregation": "seq-mean-token-sum-norm"},
    "dapo": {"surrogate": "clip", "aggregation": "token-mean"},
    "luspo": {"surrogate": "clip", "aggregation": "seq-mean-token-sum"},
    "cispo": {"surrogate": "cispo", "aggregation": "token-mean", "cispo_cap": 1.3},
    "sapo": {"surrogate": "sapo", "aggregation": "seq-mean-token-mean"},
    "vespo": {"surrogate": "vespo", "aggregation": "token-mean"},
}
"""TRL's loss types as rows over our parts."""


def trl_case(kind: str, level: str, *, pieces: int = 1, shape: str = "ragged", **options: Any) -> Case:
    """``options``: beta, delta, bias_kl, entropy_coef, top_entropy, mismatch, off_policy."""
    high = 1.3 if kind == "cispo" else 0.28
    settings = {
        **TRL_KINDS[kind], "ratio": level, "epsilon": 0.2, "epsilon_high": 0.28, "count_empty": True,
        "kl_coef": options.get("beta", 0.0), "kl_estimator": "k3", "kl_ratio": options.get("bias_kl", False),
        "dual_clip": options.get("delta"), "entropy_coef": options.get("entropy_coef", 0.0),
        "top_entropy": options.get("top_entropy", 1.0), "mismatch": options.get("mismatch", "off"), "mismatch_max": 1.5,
        "off_policy_kl": options.get("off_policy"),
    }  # fmt: skip
    words = [f"{k}={v}" for k, v in options.items()]
    name = " ".join(["trl", kind, level, shape, f"pieces={pieces}", *words])
    return Case(name, settings, {"loss_type": kind, "level": level, "eps_high": high, **options}, shape, pieces=pieces)


def trl_cases() -> list[Case]:
    """Section 2.6 of the anchors: the product of kind, level, KL, delta, ratio-weighted KL and accumulation; then entropy
    bonus, entropy mask, sampler ratio, off-policy mask and the peculiar tensors."""
    out = []
    for kind, level, beta, delta, bias, pieces in itertools.product(
        TRL_KINDS, ("token", "sequence"), (0.0, 0.04), (None, 4.0), (False, True), (1, 2)
    ):
        clipless = kind in ("cispo", "sapo", "vespo")
        if (delta is not None and clipless) or (bias and not beta) or (kind == "bnpo" and pieces == 2):
            continue
        out.append(trl_case(kind, level, pieces=pieces, beta=beta, delta=delta, bias_kl=bias))
    for kind, level in itertools.product(TRL_KINDS, ("token", "sequence")):
        out += [
            trl_case(kind, level, entropy_coef=0.01),
            trl_case(kind, level, top_entropy=0.3),
            trl_case(kind, level, top_entropy=0.3, entropy_coef=0.01, beta=0.04),
            trl_case(kind, level, off_policy=0.05),
            trl_case(kind, level, off_policy=0.05, shape="unscored"),
        ]
        out += [
            trl_case(kind, level, mismatch=mode, shape=shape, beta=0.04)
            for mode in ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
            for shape in ("ragged", "unscored")
        ]
        out += [trl_case(kind, level, shape=shape) for shape in ("empty", "holes", "zero", "tokens")]
        if kind not in ("cispo", "sapo", "vespo"):
            out.append(trl_case(kind, level, shape="extreme", delta=4.0))
    return out


def rloo_cases() -> list[Case]:
    """TRL's RLOO: the ratio of whole sequences."""
    settings = {"ratio": "sequence_sum", "epsilon_high": 0.2, "aggregation": "seq-mean-token-mean", "kl_coef": 0.0}
    return [Case(f"trl rloo {shape}", settings, {}, shape) for shape in ("ragged", "zero")]


VERL_AGGREGATIONS = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
VERL_KINDS: dict[str, dict[str, Any]] = {
    "vanilla": {"surrogate": "clip", "ratio": "token", "dual_clip": 3.0},
    "gspo": {"surrogate": "clip", "ratio": "sequence_token"},
    "cispo": {"surrogate": "cispo", "cispo_floor": 0.8},
    "sapo": {"surrogate": "sapo"},
}
"""verl's policy losses as rows over our parts."""


def verl_cases() -> list[Case]:
    """Each loss by aggregation and peculiar tensors, with and without a sampler correction."""
    out = []
    shapes = ("ragged", "empty", "holes", "zero", "tokens", "extreme")
    for kind, mode, shape, weighted in itertools.product(VERL_KINDS, VERL_AGGREGATIONS, shapes, (False, True)):
        if (kind == "sapo" and mode != "seq-mean-token-mean") or (kind == "gspo" and shape == "extreme"):
            continue
        settings = {
            **VERL_KINDS[kind], "aggregation": mode, "epsilon": 0.2, "epsilon_high": 0.28, "kl_coef": 0.0,
            "mismatch": "token_truncate" if weighted else "off", "mismatch_max": 1.5,
        }  # fmt: skip
        name = f"verl {kind} {mode} {shape}{' corrected' if weighted else ''}"
        out.append(Case(name, settings, {"kind": kind, "mode": mode, "weighted": weighted}, shape))
    return out


def recorded_cases() -> list[Case]:
    """Those whose numbers are kept for the default suite: a slice of each kind."""
    return [*trl_cases()[::6], *rloo_cases(), *verl_cases()[::4]]
