"""Reported faults of ratios, KL and advantages. Numbers as in the anchors, section 3."""

from __future__ import annotations

import math

import pytest
import torch

from tests.trainer.faults.making import advantages, batch_of, context, group, trajectory
from trainer.advantages.estimators import ESTIMATORS, Outcome
from trainer.contract.algorithm import AlgorithmSection
from trainer.contract.config import parse_config
from trainer.core.slots import Scores
from trainer.loop.assemble import base_objectives
from trainer.loop.update import scored
from trainer.objectives.aggregate import Denominators, reduce_term
from trainer.objectives.kl import ESTIMATORS as KLS
from trainer.objectives.kl import kl_estimate
from trainer.objectives.mismatch import correction
from trainer.objectives.policy_gradient import PolicyGradient
from trainer.rollout.sampler import Request, SamplingParams, StreamKey
from trainer.rollout.torch_sampler import TorchSampler
from trainer.testing.tiny import tiny_policy
from trainer.transforms.dynamic_sampling import DynamicSampling


def test_06_the_temperature_is_missing_in_one_of_the_two_engines() -> None:
    policy = tiny_policy()
    prompt = (4, 5, 6)
    params = SamplingParams(temperature=0.6, max_new_tokens=6)
    drawn = TorchSampler(policy.model).generate([Request("p", prompt, 4)], params, StreamKey(0, 1))[0]
    batch = batch_of([trajectory(c.ids, prompt=prompt) for c in drawn])
    sampler = torch.tensor([c.logprobs for c in drawn])
    options = {"mode": "sequence_truncate", "low": None, "high": None}
    ratio = correction(scored(policy, batch, 0.6).logprobs_NT, sampler, batch.mask_NT, **options).raw  # type: ignore[arg-type]
    assert ratio.flatten().tolist() == pytest.approx([1.0] * 4, abs=1e-4)
    wrong = correction(scored(policy, batch, 1.0).logprobs_NT, sampler, batch.mask_NT, **options).raw  # type: ignore[arg-type]
    assert float((wrong - 1).abs().max()) > 0.1


def test_08_a_small_gap_a_token_explodes_over_a_long_sequence() -> None:
    batch = batch_of([trajectory([4] * 100), trajectory([4] * 10)])
    batch.columns["old_logprobs"] = batch.columns["sampler_logprobs"].nan_to_num() + 0.012
    part, ctx = PolicyGradient(AlgorithmSection(mismatch="sequence_mask")), context()
    part.prepare(batch, ctx)
    assert batch.columns["sampler_weight"].flatten().tolist() == pytest.approx([0.0, math.exp(0.12)], rel=1e-5)
    assert ctx.metrics["sampling/importance_sampling_ratio/outside"] == 0.5
    found = correction(batch.columns["old_logprobs"], batch.columns["sampler_logprobs"], batch.mask_NT,
                       mode="sequence_truncate", low=None, high=3.0)  # fmt: skip
    assert found.raw[0].tolist() == pytest.approx([math.exp(1.2)], rel=1e-4)
    assert found.weight[0].tolist() == [3.0]


@pytest.mark.parametrize("kind", KLS)
@pytest.mark.parametrize("gap", [200.0, -200.0])
def test_18_the_kl_to_the_base_overflows(kind: str, gap: float) -> None:
    now = torch.tensor([[-201.0 if gap > 0 else -1.0]], requires_grad=True)
    kl = kl_estimate(now, now.detach() + gap, kind)
    kl.sum().backward()
    assert bool(kl.isfinite().all())
    assert bool(now.grad.isfinite().all())


def test_21_groups_without_variance_are_found_by_an_exact_comparison_or_lose_their_best_member() -> None:
    section = {"zero_variance": "drop", "num_generations": 8}
    config = parse_config({"kind": "rl", "policy": {"checkpoint": "x"}, "algorithm": section})
    dead, alive, nearly = (
        group([0.3] * 8, "dead"),
        group([0.0] + [0.95] * 7, "alive"),
        group([1, 1, 1 + 1e-9], "nearly"),
    )
    found = DynamicSampling(config).apply([dead, alive, nearly], context())
    assert [g.id for g in found.groups] == ["alive"]
    assert len(found.groups[0].trajectories) == 8
    assert [g.id for g in found.dropped] == ["dead", "nearly"]


@pytest.mark.parametrize("rewards", [[1.0, 1.0], [0.0, 0.0]])
def test_22_groups_without_a_signal_still_pull_through_the_kl(rewards: list[float]) -> None:
    batch = batch_of([trajectory([4, 5, 6], reward=r) for r in rewards], ids=["g", "g"])
    section = AlgorithmSection(kl_coef=0.1)
    x = Outcome(batch.reward_N, batch.group_ids, batch.mask_NT, torch.zeros_like(batch.mask_NT))
    advantages(batch, ESTIMATORS["group_zscore"](x, section).advantage.tolist())
    now = torch.full((2, 3), -1.0, requires_grad=True)
    batch.columns["reference_logprobs"] = now.detach() - 0.5
    counts, ctx = Denominators.of(batch, max_length=8), context()
    pulls = {}
    for part in base_objectives(section):
        part.prepare(batch, ctx)
        (term,) = part.terms(batch, Scores(now, torch.zeros(2, 3)), ctx)
        pulls[term.name] = torch.autograd.grad(reduce_term(term, batch.mask_NT, counts), now)[0]
    assert pulls["policy"].unique().tolist() == [0.0]
    assert float(pulls["kl"].abs().min()) > 0
    # Whether they count at all is a setting: left out they are in no denominator either.
    drop = parse_config({"kind": "rl", "policy": {"checkpoint": "x"}, "algorithm": {"zero_variance": "drop"}})
    assert DynamicSampling(drop).apply([group(rewards)], context()).groups == []


@pytest.mark.parametrize("name", ["group_zscore", "batch_zscore", "group_mean", "leave_one_out", "length_weighted"])
def test_28_groups_are_formed_by_position_and_a_shuffled_batch_becomes_reinforce(name: str) -> None:
    reward = torch.tensor([1.0, 0.0, 0.5, 0.0, 0.25, 1.0])
    ids, mask = list("aabbcc"), torch.ones(6, 2)
    order = [1, 4, 0, 2, 3, 5]

    def estimate(reward_N: torch.Tensor, names: list[str]) -> torch.Tensor:
        x = Outcome(reward_N, names, mask, torch.zeros_like(mask))
        return ESTIMATORS[name](x, AlgorithmSection(advantage=name)).advantage

    plain, shuffled = estimate(reward, ids), estimate(reward[order], [ids[i] for i in order])
    assert torch.allclose(shuffled, plain[order])
    assert not torch.allclose(estimate(reward[order], ids), plain[order])
