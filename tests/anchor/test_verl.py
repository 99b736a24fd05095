"""Our losses, advantages, KL, value loss and corrections against verl's registries, on the same tensors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.anchor
pytest.importorskip("verl", reason="needs tests/anchor/run.sh")

import numpy as np  # noqa: E402
from verl.trainer.ppo import core_algos, rollout_corr_helper  # noqa: E402

from tests.anchor.by_verl import by_verl  # noqa: E402
from tests.anchor.cases import Case, tensors, verl_cases  # noqa: E402
from tests.anchor.ours import ours  # noqa: E402
from trainer.advantages.estimators import ESTIMATORS, Outcome  # noqa: E402
from trainer.contract.algorithm import AlgorithmSection  # noqa: E402
from trainer.objectives.kl import adapted, kl_estimate  # noqa: E402
from trainer.objectives.mismatch import correction  # noqa: E402
from trainer.objectives.value import value_loss  # noqa: E402

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-6}
GUARDS = 3e-8
"""verl adds 1e-8 to token counts where it divides by them, which is up to this much of a value around 1."""
GAPS: dict[str, float] = {}


@pytest.fixture(scope="module", autouse=True)
def _largest_gap():  # type: ignore[no-untyped-def]
    yield
    print("\nlargest |difference| to verl:", {k: f"{v:.1e}" for k, v in GAPS.items()})


def check(kind: str, dtype: torch.dtype, ours_: Any, theirs: Any, *, guarded: bool = False) -> None:
    a, b = torch.as_tensor(ours_, dtype=torch.double), torch.as_tensor(theirs, dtype=torch.double)
    scale = max(1.0, float(b.abs().max()))
    gap = float((a - b).abs().max()) / scale
    key = f"{kind} {dtype}{' (guarded)' if guarded else ''}"
    GAPS[key] = max(GAPS.get(key, 0.0), gap)
    assert gap <= max(TOLERANCE[dtype], GUARDS if guarded else 0.0)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", verl_cases(), ids=lambda c: c.name)
def test_loss_and_gradient_are_verls(case: Case, dtype: torch.dtype) -> None:
    (loss, gradient), (theirs, their_gradient) = ours(case, dtype), by_verl(case, dtype)
    guarded = case.theirs["mode"] == "seq-mean-token-mean"
    check("loss", dtype, loss, theirs, guarded=guarded)
    check("gradient", dtype, gradient, their_gradient, guarded=guarded)


ADVANTAGES = {
    "grpo": ("group_zscore", {"adv_eps": 1e-6}, {}),
    "grpo without std": ("group_mean", {}, {"norm_adv_by_std_in_grpo": False}),
    "rloo": ("leave_one_out", {}, {}),
    "rloo_vectorized": ("leave_one_out", {}, {}),
    "opo": ("length_weighted", {}, {}),
    "reinforce_plus_plus": ("whitened_return", {"gamma": 0.97}, {"config": SimpleNamespace(gamma=0.97)}),
    "reinforce_plus_plus_baseline": ("whitened_group_mean", {}, {}),
    "gae": ("gae", {"gamma": 0.97, "gae_lambda": 0.9}, {"gamma": 0.97, "lam": 0.9}),
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", ["ragged", "holes"])
@pytest.mark.parametrize("name", ADVANTAGES)
def test_advantages_are_verls(name: str, shape: str, dtype: torch.dtype) -> None:
    own, settings, options = ADVANTAGES[name]
    t = tensors(Case(f"advantage {name}", {}, {}, shape), dtype)
    ids = ["a", "b", "a", "b", "a", "b"]
    penalty = (0.1 * t.reference).detach() if own in ("whitened_return", "gae") else torch.zeros_like(t.mask)
    x = Outcome(t.advantage, ids, t.mask, penalty, t.entropy.detach())
    found = ESTIMATORS[own](x, AlgorithmSection(advantage=own, **settings))
    values = {"values": t.entropy.detach()} if own == "gae" else {"index": np.array(ids)}
    if own == "whitened_return":
        values = {}
    theirs, returns = core_algos.get_adv_estimator_fn(name.split()[0])(
        token_level_rewards=x.reward_NT.clone(), response_mask=t.mask, **values, **options
    )
    ours_ = found.advantage if found.advantage.ndim == 2 else found.advantage[:, None]
    check("advantage", dtype, ours_ * t.mask, theirs * t.mask, guarded=own.startswith("whitened") or own == "gae")
    if own == "gae":
        assert found.returns_NT is not None
        check("returns", dtype, found.returns_NT * t.mask, returns * t.mask)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "k1+", "k3+"])
def test_kl_estimates_and_gradients_are_verls(kind: str, dtype: torch.dtype) -> None:
    t = tensors(Case(f"kl {kind}", {}, {}), dtype)
    a, b = kl_estimate(t.now, t.reference, kind), core_algos.kl_penalty(t.now, t.reference, kind)
    check("kl", dtype, a.detach(), b.detach())
    check("kl", dtype, torch.autograd.grad(a.sum(), t.now)[0], torch.autograd.grad(b.sum(), t.now)[0])


def test_the_adaptive_coefficient_is_verls() -> None:
    theirs = core_algos.AdaptiveKLController(0.2, 0.1, 10_000)
    ours_ = 0.2
    for kl, sequences in ((0.15, 256), (0.02, 512), (5.0, 64), (0.1, 1)):
        theirs.update(kl, sequences)
        ours_ = adapted(ours_, kl, target=0.1, horizon=10_000, sequences=sequences)
        check("coefficient", torch.float64, ours_, theirs.value)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_the_value_loss_and_its_gradient_are_verls(dtype: torch.dtype) -> None:
    t = tensors(Case("value", {}, {}, "holes"), dtype)
    theirs, clipped = core_algos.compute_value_loss(t.entropy, t.reference, t.old, t.mask, 0.3)
    loss, acted = value_loss(t.entropy, t.old, t.reference, 0.3)
    mean = (loss * t.mask).sum() / t.mask.sum()
    check("value", dtype, mean.detach(), theirs.detach())
    check("value", dtype, torch.autograd.grad(mean, t.entropy)[0], torch.autograd.grad(theirs, t.entropy)[0])
    check("value", dtype, (acted * t.mask).sum() / t.mask.sum(), clipped, guarded=True)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", ["ragged", "holes", "extreme"])
@pytest.mark.parametrize("mode", ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"])
def test_sampler_corrections_are_verls(mode: str, shape: str, dtype: torch.dtype) -> None:
    t = tensors(Case(f"correction {mode}", {}, {}, shape), dtype)
    level, action = mode.split("_")
    low = 0.6 if action == "mask" else None
    found = correction(t.old, t.sampler, t.mask, mode=mode, low=low, high=1.5)
    theirs, _ = rollout_corr_helper.compute_rollout_correction_weights(
        t.old - t.sampler, t.mask, rollout_is=level, rollout_is_threshold="0.6_1.5" if low else 1.5
    )
    check("correction", dtype, found.weight.expand_as(t.mask) * t.mask, theirs * t.mask)
