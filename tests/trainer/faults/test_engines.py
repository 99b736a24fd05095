"""Reported faults between the sampler, the tokenizer and the trainer's own forward. Numbers as in the anchors, section 3."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from tests.trainer.faults.making import PROMPT, batch_of, context, trajectory
from trainer.contract.config import parse_config
from trainer.core.slots import Draw
from trainer.loop.update import scored
from trainer.policy import scoring
from trainer.policy.load import Policy, new_policy
from trainer.policy.scoring import LOGIT_ELEMENTS, score
from trainer.rollout.plan import SinglePass
from trainer.rollout.sampler import Completion, Request, SamplingParams, StreamKey
from trainer.rollout.torch_sampler import TorchSampler
from trainer.testing.tiny import TINY, tiny_policy

STREAM = StreamKey(0, 1)
PROMPT_IDS = (1, 5, 6, 7)


def rolled_out(policy: Policy, *, sampler: Any = None, count: int = 8, tokens: int = 12) -> Any:
    """One group by the loop's own plan, and the context in which it was drawn."""
    document = {"kind": "rl", "policy": {"checkpoint": "x"}, "algorithm": {"num_generations": count},
                "sampling": {"max_new_tokens": tokens}}  # fmt: skip
    ctx = context(policy)
    ctx.scope, ctx.should_stop = "", lambda: False
    ctx.sampler = sampler or TorchSampler(policy.model)
    (group,) = SinglePass(parse_config(document)).rollout([Draw(PROMPT, 0, 1.0)], ctx)  # type: ignore[arg-type]
    return group, ctx


def row_of(prompt: tuple[int, ...], ids: list[int]) -> list[torch.Tensor]:
    return [torch.tensor(x) for x in ([prompt], [len(prompt)], [ids], [len(ids)])]


def test_04_only_the_tokenizers_end_token_counts_and_answers_look_truncated() -> None:
    policy = tiny_policy()
    free, _ = rolled_out(policy)
    second = free.trajectories[0].nodes[0].spans[1].ids[3]
    policy.model.generation_config.eos_token_id = [policy.tokenizer.eos_token_id, second]
    group, _ = rolled_out(policy)
    ended = [t for t in group.trajectories if t.nodes[0].spans[1].ids[-1] == second]
    assert ended
    for t in ended:
        assert (t.end, t.truncated) == ("eos", False)
        assert second not in t.nodes[0].spans[1].ids[:-1]
        assert t.text == policy.tokenizer.decode(list(t.nodes[0].spans[1].ids[:-1]))


def ignoring(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A model's forward that returns the logits of every position, whichever it was asked for."""

    def whole(*args: Any, **options: Any) -> Any:
        options.pop("logits_to_keep", None)
        return forward(*args, **options)

    return whole


def test_05_a_model_that_ignores_logits_to_keep_is_read_one_position_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "why_not_lean", lambda *_a, **_k: "forced by the test")
    policy = tiny_policy()
    sampler = TorchSampler(policy.model)
    sampler.fallback_reason = "forced by the test"
    params = SamplingParams(temperature=1.0, max_new_tokens=6)
    found = []
    for forward in (policy.model.forward, ignoring(policy.model.forward)):
        monkeypatch.setattr(policy.model, "forward", forward)
        (drawn,) = sampler.generate([Request("p", PROMPT_IDS, 2)], params, STREAM)
        own = score(policy.model, *row_of(PROMPT_IDS, drawn[0].ids), temperature=1.0).logprobs_NT[0]
        assert own.tolist() == pytest.approx(drawn[0].logprobs, abs=1e-5)
        found.append(([c.ids for c in drawn], own))
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])


def test_10_a_prompts_cache_is_kept_across_an_update() -> None:
    policy = tiny_policy()
    sampler, params = TorchSampler(policy.model), SamplingParams(temperature=1.0, max_new_tokens=8)
    before = sampler.generate([Request("p", PROMPT_IDS, 4)], params, STREAM)
    with torch.no_grad():
        policy.model.model.layers[0].self_attn.k_proj.weight.mul_(-1.0)
    after = sampler.generate([Request("p", PROMPT_IDS, 4)], params, STREAM)
    assert after == TorchSampler(policy.model).generate([Request("p", PROMPT_IDS, 4)], params, STREAM)
    assert after != before


class Overtaken:
    """A sampler during whose call the policy is updated."""

    def __init__(self, policy: Policy) -> None:
        self.sampler, self.counters = TorchSampler(policy.model), SimpleNamespace(policy_version=0)

    def generate(self, *args: Any, **options: Any) -> list[list[Completion]]:
        found = self.sampler.generate(*args, **options)
        self.counters.policy_version += 1
        return found


def test_11_answers_are_stamped_with_the_version_that_was_there_when_they_were_finished() -> None:
    policy = tiny_policy()
    sampler = Overtaken(policy)
    document = {"kind": "rl", "policy": {"checkpoint": "x"}, "algorithm": {"num_generations": 2}}
    ctx = context(policy)
    ctx.scope, ctx.should_stop, ctx.sampler = "", lambda: False, sampler
    ctx.state.counters.policy_version = 6
    sampler.counters = ctx.state.counters
    (group,) = SinglePass(parse_config(document)).rollout([Draw(PROMPT, 0, 1.0)], ctx)  # type: ignore[arg-type]
    assert ctx.state.counters.policy_version == 7
    assert {span.policy_version for t in group.trajectories for span in t.spans()} == {6}


def merging_tokenizer() -> PreTrainedTokenizerFast:
    """One that writes "he" and "llo" as "hello", and reads "hello" as one token."""
    vocab = {token: i for i, token in enumerate(["<pad>", "<eos>", "h", "e", "l", "o", "he", "ll", "llo", "hello"])}
    core = Tokenizer(BPE(vocab, [("h", "e"), ("l", "l"), ("ll", "o"), ("he", "llo")]))
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>")


def test_12_ids_that_are_decoded_and_encoded_again_are_others() -> None:
    tokenizer = merging_tokenizer()
    assert tokenizer("hello")["input_ids"] == tokenizer(tokenizer.decode([6, 8]))["input_ids"] == [9]
    policy = new_policy(TINY, tokenizer, seed=0)
    params = SamplingParams(temperature=1.0, max_new_tokens=12)
    request = Request("p", (6, 8), 16)
    sampler = TorchSampler(policy.model)
    (drawn,) = sampler.generate([request], params, STREAM)
    drifted = [j for j, c in enumerate(drawn) if tokenizer(policy.decode_completion(c.ids))["input_ids"] != c.ids]
    assert drifted
    batch = batch_of([trajectory(c.ids, prompt=request.prompt_ids) for c in drawn])
    assert batch.ids_NT.tolist() == [c.ids for c in drawn]
    assert batch.prefix_ids_NP.tolist() == [[6, 8]] * 16
    # A later turn begins with the very ids of the earlier ones, and goes on as the whole did.
    j = drifted[0]
    rest = Request("p", request.prompt_ids, 1, first_sample=j, prefix_ids=tuple(drawn[j].ids[:6]))
    ((again,),) = sampler.generate([rest], SamplingParams(temperature=1.0, max_new_tokens=6), STREAM)
    assert drawn[j].ids[:6] + again.ids == drawn[j].ids


class Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.elements = max(self.elements, out.numel())
        return out


@pytest.mark.parametrize("tokens", [200, 400])
def test_25_memory_runs_out_by_the_logits_of_a_large_vocabulary_and_not_by_the_model(tokens: int) -> None:
    vocabulary = 150_000
    config = LlamaConfig(vocab_size=vocabulary, hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
                         num_key_value_heads=1, intermediate_size=8, max_position_embeddings=512)  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    ids = [7 * t % vocabulary for t in range(tokens)]
    with Largest() as seen:
        score(model, *row_of((1, 2), ids), temperature=1.0).logprobs_NT.sum().backward()
    assert LOGIT_ELEMENTS - vocabulary < seen.elements <= LOGIT_ELEMENTS < tokens * vocabulary


def test_27_a_samples_randomness_depends_on_what_else_is_drawn() -> None:
    sampler = TorchSampler(tiny_policy().model)
    params = SamplingParams(temperature=1.0, max_new_tokens=8)
    requests = [Request(name, (1, 5 + i), 3) for i, name in enumerate("abcd")]
    whole = sampler.generate(requests, params, STREAM)
    shuffled = sampler.generate([requests[i] for i in (2, 0, 3, 1)], params, STREAM)
    for i, group in zip((2, 0, 3, 1), shuffled, strict=True):
        assert [c.ids for c in group] == [c.ids for c in whole[i]]
    (alone,) = sampler.generate([requests[3]], params, STREAM)
    assert [c.ids for c in alone] == [c.ids for c in whole[3]]


def test_30_packed_samples_see_each_other() -> None:
    policy = tiny_policy()
    answers = [[9, 10, 11, 2], [12, 13, 14, 15, 16, 2], [20, 2]]
    packed = scored(policy, batch_of([trajectory(ids, prompt=PROMPT_IDS) for ids in answers]), 1.0).logprobs_NT
    for row, ids in zip(packed, answers, strict=True):
        logits = policy.model(torch.tensor([[*PROMPT_IDS, *ids]])).logits[0, len(PROMPT_IDS) - 1 : -1]
        alone = logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0]
        assert row[: len(ids)].tolist() == pytest.approx(alone.tolist(), abs=1e-5)
    # Put into one row with positions that start again, but without a mask of blocks, the second answer sees the first.
    joined = [*PROMPT_IDS, *answers[0], *PROMPT_IDS, *answers[1]]
    positions = [*range(len(PROMPT_IDS) + 4), *range(len(PROMPT_IDS) + 6)]
    mask = torch.zeros(1, 1, len(joined), len(joined)).masked_fill(
        torch.ones(len(joined), len(joined)).triu(1).bool(), -torch.inf
    )
    leaking = policy.model(torch.tensor([joined]), attention_mask=mask, position_ids=torch.tensor([positions])).logits
    leaked = leaking.detach()[0, -7:-1].log_softmax(-1).gather(1, torch.tensor(answers[1])[:, None])[:, 0]
    assert float((leaked - packed[1]).abs().max()) > 0.1
