"""Truncated sampling in the trainer: one set of tokens for the sampler, every step and the reference."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.trainer.faults.making import PROMPT, batch_of, context, trajectory
from trainer.contract.config import RlConfig, parse_config
from trainer.core.types import Batch, Group, Node, Span, Trajectory
from trainer.loop.batching import WholePath, build_batch, rows_of
from trainer.loop.forward import score_batch
from trainer.loop.update import fill_columns
from trainer.policy import scoring
from trainer.policy.load import Policy
from trainer.rollout.distribution import sampling_logprobs
from trainer.rollout.sampler import Request, SamplingParams, StreamKey
from trainer.rollout.torch_sampler import TorchSampler
from trainer.testing.tiny import tiny_policy

CUTS = [{"top_k": 5}, {"top_p": 0.7}, {"min_p": 0.2}, {"top_k": 8, "top_p": 0.8, "min_p": 0.05}]
PROMPTS = [(1, 5, 6, 7), (1, 9), (1, 9, 3, 4, 5, 6, 7, 8)]


def config_of(**sampling: Any) -> RlConfig:
    document = {"kind": "rl", "policy": {"checkpoint": "x"}, "sampling": {"temperature": 0.9, "max_new_tokens": 10, **sampling},
                "algorithm": {"num_iterations": 2}}  # fmt: skip
    config = parse_config(document)
    assert isinstance(config, RlConfig)
    return config


def drawn(policy: Policy, config: RlConfig) -> Batch:
    """A batch that the torch sampler drew from the policy as it is."""
    params = SamplingParams.of(config.sampling, (2,))
    requests = [Request(str(i), prompt, 6) for i, prompt in enumerate(PROMPTS)]
    samples = []
    for request, group in zip(
        requests, TorchSampler(policy.model).generate(requests, params, StreamKey(0, 1)), strict=True
    ):
        for c in group:
            span = Span(tuple(c.ids), "answer", sampled=True, trained=True, logprobs=tuple(c.logprobs))
            one = Trajectory([Node(0, [Span(request.prompt_ids, "prompt", origin="env"), span])], "p", 0, c.finish)
            samples += WholePath().samples(one, Group(PROMPT, [one], request.uid), SimpleNamespace())  # type: ignore[arg-type]
    return build_batch(samples, 0)


def filled(policy: Policy, batch: Batch, config: RlConfig) -> Any:
    ctx = context(policy)
    fill_columns(batch, [], ctx, config, steps=2)
    return ctx


def moved(policy: Policy) -> None:
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.add_(0.3 * weight.std() * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))


def row_logits(policy: Policy, batch: Batch, row: int) -> torch.Tensor:
    sample = batch.samples[row]
    with torch.no_grad():
        logits = policy.model(torch.tensor([[*sample.prefix_ids, *sample.ids]])).logits[0]
    return logits[len(sample.prefix_ids) - 1 : -1]


@pytest.mark.parametrize("cut", CUTS)
def test_07_the_sampler_renormalises_over_the_kept_tokens_and_the_trainer_does_not(cut: dict[str, Any]) -> None:
    policy, config = tiny_policy(), config_of(**cut)
    batch = drawn(policy, config)
    ctx = filled(policy, batch, config)
    there = batch.mask_NT > 0
    gap = (batch.columns["old_logprobs"] - batch.columns["sampler_logprobs"])[there].abs()
    assert float(gap.max()) <= 1e-5
    assert ctx.tallies["sampling/outside_kept"] == [0.0, float(there.sum())]
    batch.kept = None
    with torch.no_grad():
        whole = score_batch(policy, batch, 0.9).logprobs_NT
    assert float((whole - batch.columns["sampler_logprobs"])[there].abs().max()) > 0.1


@pytest.mark.parametrize("path", ["own", "generic"])
def test_new_weights_are_held_against_the_set_of_the_old_ones(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if path == "generic":
        monkeypatch.setattr(scoring, "why_not_lean", lambda *_a, **_k: "forced")
    policy, config = tiny_policy(), config_of(top_p=0.6)
    batch = drawn(policy, config)
    filled(policy, batch, config)
    params = SamplingParams.of(config.sampling, ())
    sets = [sampling_logprobs(row_logits(policy, batch, row), params) > -torch.inf for row in range(batch.size)]
    moved(policy)
    now = score_batch(policy, batch, 0.9)
    assert bool(torch.isfinite(now.logprobs_NT).all())
    left = 0
    for row, keep in enumerate(sets):
        logits, ids = row_logits(policy, batch, row), torch.tensor(batch.samples[row].ids)[:, None]
        logp = (logits / 0.9).masked_fill(~keep, -math.inf).log_softmax(-1)
        expected = logp.gather(1, ids)[:, 0]
        torch.testing.assert_close(now.logprobs_NT[row, : len(ids)], expected, atol=1e-5, rtol=0)
        entropy = -(logp.exp() * logp).nan_to_num().sum(-1)
        torch.testing.assert_close(now.entropy_NT[row, : len(ids)], entropy, atol=1e-5, rtol=0)
        left += int((sampling_logprobs(logits, params).gather(1, ids) == -torch.inf).sum())
    assert left > 0, "the new weights should have cut off some of the drawn tokens"
    now.logprobs_NT.sum().backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in policy.model.parameters() if p.grad is not None)


def test_a_drawn_token_outside_the_trainers_own_set_is_added_and_counted() -> None:
    policy, config = tiny_policy(), config_of(top_k=1)
    batch = batch_of([trajectory([4, 5, 6], prompt=(1, 7)), trajectory([7], prompt=(1, 7))])
    ctx = filled(policy, batch, config)
    outside, sampled = ctx.tallies["sampling/outside_kept"]
    assert sampled == 4
    assert outside >= 2
    assert batch.kept is not None
    for row, kept in enumerate(batch.kept):
        best = row_logits(policy, batch, row).argmax(-1).tolist()
        expected = [sorted({a, b}) for a, b in zip(best, batch.samples[row].ids, strict=True)]
        found = [part.tolist() for part in kept.ids.split(kept.counts_T.tolist())]
        assert found == expected
        assert kept.outside_T.tolist() == [len(both) == 2 for both in expected]
    assert bool(torch.isfinite(batch.columns["old_logprobs"]).all())


def test_tokens_that_nobody_sampled_keep_the_whole_distribution() -> None:
    policy, config = tiny_policy(), config_of(top_k=2)
    spans = [
        Span((1, 7), "prompt", origin="env"),
        Span((4, 5), "answer", sampled=True, trained=True, logprobs=(-1.0, -1.0)),
        Span((6, 8), "injected", trained=True, origin="teacher"),
    ]
    batch = batch_of([Trajectory([Node(0, spans)], "p", 0, "eos")])
    filled(policy, batch, config)
    whole = (row_logits(policy, batch, 0) / 0.9).log_softmax(-1).gather(1, torch.tensor([[4], [5], [6], [8]]))[:, 0]
    got = batch.columns["old_logprobs"][0]
    torch.testing.assert_close(got[2:], whole[2:], atol=1e-5, rtol=0)
    assert bool((got[:2] > whole[:2] + 0.01).all())


def test_chunks_rows_and_gradients_are_those_of_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, config = tiny_policy(), config_of(top_k=6, top_p=0.9)
    batch = drawn(policy, config)
    filled(policy, batch, config)
    moved(policy)

    def numbers(parts: list[list[int]]) -> list[torch.Tensor]:
        policy.model.zero_grad()
        for rows in parts:
            scores = score_batch(policy, rows_of(batch, rows), 0.9, entropy_grad=True)
            (scores.logprobs_NT.sum() + scores.entropy_NT.sum()).backward()
        return [p.grad.clone() for p in policy.model.parameters() if p.grad is not None]

    whole = numbers([list(range(batch.size))])
    split = numbers([[5, 2, 17], [i for i in range(batch.size) if i not in (5, 2, 17)]])
    monkeypatch.setattr(scoring.score, "__kwdefaults__", {**scoring.score.__kwdefaults__, "logit_elements": 300})
    chunked = numbers([list(range(batch.size))])
    for a, b, c in zip(whole, split, chunked, strict=True):
        assert bool(torch.isfinite(a).all())
        torch.testing.assert_close(b, a, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(c, a, atol=1e-4, rtol=1e-4)


def test_a_reference_that_equals_the_policy_is_at_kl_zero() -> None:
    policy, config = tiny_policy(), config_of(top_p=0.5)
    batch = drawn(policy, config)
    ctx = context(policy)
    ctx.state.policies["reference"] = ctx.state.policies["policy"]
    fill_columns(batch, [SimpleNamespace(needs=frozenset({"reference_logprobs"}))], ctx, config, steps=1)  # type: ignore[list-item]
    assert torch.equal(batch.columns["reference_logprobs"], batch.columns["old_logprobs"])
