"""Reported faults: what must not depend on how a step is cut into micro-batches. Numbers are those of the list in the
anchors, section 3."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch

from tests.trainer.faults.making import advantages, batch_of, context, trajectory
from trainer.contract.algorithm import AggregationName
from trainer.contract.config import parse_config
from trainer.core.slots import PhasePlan
from trainer.core.types import Batch
from trainer.loop import update
from trainer.loop.assemble import base_objectives
from trainer.loop.batching import microbatches
from trainer.loop.optim import make_optimizer
from trainer.loop.update import scored
from trainer.testing.tiny import tiny_policy


def rows(*lengths: int) -> Batch:
    return batch_of([trajectory([4 + (i * 7 + t) % 20 for t in range(n)]) for i, n in enumerate(lengths)])


def stepped(
    batch: Batch, tokens: int = 10_000, **settings: Any
) -> tuple[dict[str, torch.Tensor], dict[str, list[float]]]:
    """The gradients that one optimiser step without a learning rate leaves on a tiny policy, and what it tallied."""
    document = {
        "kind": "rl", "policy": {"checkpoint": "x"}, "algorithm": settings, "sampling": {"max_new_tokens": 16},
        "optimizer": {"learning_rate": 0.0, "max_grad_norm": 1e9},
    }  # fmt: skip
    config: Any = parse_config(document)
    # Fewer tokens a pass than a configuration may ask for.
    config = config.model_copy(update={"algorithm": config.algorithm.model_copy(update={"microbatch_tokens": tokens})})
    policy = tiny_policy()
    objectives, ctx = base_objectives(config.algorithm), context(policy)
    ctx.state.policies["policy"].optimizer = make_optimizer(policy.model, config.optimizer)
    for one in objectives:
        one.prepare(batch, ctx)
    update.update(batch, PhasePlan("rl", "RL"), objectives, [], ctx, config)
    return {n: p.grad for n, p in policy.model.named_parameters()}, ctx.tallies


@pytest.mark.parametrize("aggregation", get_args(AggregationName))
def test_01_token_mean_by_micro_batch_makes_the_gradient_depend_on_the_split(aggregation: str) -> None:
    batch = rows(1, 9)
    advantages(batch, [1.0, -0.5])
    before = scored(tiny_policy(), batch, 1.0)
    batch.columns.update(old_logprobs=before.logprobs_NT - 0.1, old_entropy=before.entropy_NT)
    batch.columns["reference_logprobs"] = before.logprobs_NT - 0.3
    more = {
        "aggregation": aggregation,
        "kl_coef": 0.1,
        "entropy_coef": 0.1,
        "top_entropy": 0.5,
        "mismatch": "token_mask",
    }
    whole, _ = stepped(batch, **more)
    assert len(list(microbatches(batch, 4))) == 2
    split, _ = stepped(batch, 4, **more)
    largest = max(float(g.abs().max()) for g in whole.values())
    assert largest > 1e-3
    for name, expected in whole.items():
        assert float((split[name] - expected).abs().max()) < 1e-6 * max(1.0, largest)


def test_16_sorting_by_length_gives_entropies_to_the_wrong_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, lengths = tiny_policy(), (2, 9, 1, 5)
    batch = rows(*lengths)
    monkeypatch.setattr(update, "MICROBATCH_TOKENS_WITHOUT_GRADIENT", 8)
    found = scored(policy, batch, 1.0)
    for i, n in enumerate(lengths):
        alone = scored(policy, batch_of([batch.samples[i].trajectory]), 1.0)
        assert torch.allclose(found.entropy_NT[i, :n], alone.entropy_NT[0], atol=1e-5)
        assert torch.allclose(found.logprobs_NT[i, :n], alone.logprobs_NT[0], atol=1e-5)
    assert float(found.entropy_NT[0, 2:].abs().sum()) == 0.0


def test_19_a_clip_share_of_zero_on_policy_is_no_fault_and_the_loss_is_no_sign_of_health() -> None:
    batch = rows(3, 3)
    advantages(batch, [1.0, -1.0])
    gradients, tallies = stepped(batch)
    assert tallies["loss"][0] == pytest.approx(0.0, abs=1e-6)
    assert tallies["clip_ratio/low_mean"] == [0.0, 6.0]
    assert max(float(g.abs().max()) for g in gradients.values()) > 1e-3


def test_29_a_token_budget_is_exceeded_by_the_balancer() -> None:
    batch = batch_of([trajectory([4] * 5) for _ in range(8)])
    assert [len(chunk) for chunk in microbatches(batch, 8)] == [1] * 8
    assert [len(chunk) for chunk in microbatches(batch, 14)] == [2] * 4
