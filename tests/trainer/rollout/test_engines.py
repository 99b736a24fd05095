"""What every engine promises, asked of each: the torch sampler always, vLLM where it is installed (``-m vllm``)."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from trainer.contract.config import LoraSection
from trainer.core.errors import ConfigError, SamplerError
from trainer.policy import adapters
from trainer.policy.load import Policy
from trainer.policy.scoring import score
from trainer.rollout.distribution import sampling_logprobs
from trainer.rollout.sampler import Completion, Request, SamplingParams, SamplingStopped, StreamKey
from trainer.rollout.torch_sampler import TorchSampler
from trainer.testing.tiny import tiny_policy

pytestmark = pytest.mark.filterwarnings("ignore")
STREAM = StreamKey(seed=1, iteration=0)
REQUESTS = [
    Request("a", (1, 5, 6, 7), 5),
    Request("b", (1, 9), 3),
    Request("c", (1, 9, 3, 4, 5, 6, 7, 8, 9, 10, 11), 4),
    Request("d", (1, 9), 2, draw=1),
]
LONG = Request("long", (1, *(3 + i * i % 40 for i in range(200))), 3)
GAP = 1e-5


def installed(engine: str) -> None:
    if engine == "vllm" and importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed: pip install --no-deps -r requirements-vllm.txt")


ENGINES = ["torch", "generic", pytest.param("vllm", marks=pytest.mark.vllm)]


def made(engine: str, policy: Policy) -> Any:
    """The engine's sampler over a policy."""
    if engine == "vllm":
        from trainer.rollout.vllm_sampler import VllmSampler

        return VllmSampler(policy.model, tokenizer=policy.tokenizer, max_rows=16)
    sampler = TorchSampler(policy.model, tokenizer=policy.tokenizer, max_rows=6)
    if engine == "generic":
        sampler.fallback_reason = "forced by the test"
    return sampler


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[tuple[Policy, Any]]:
    """A policy with heads of a size that vLLM has on a CPU, and the engine's sampler over it."""
    installed(request.param)
    policy = tiny_policy(hidden_size=64, heads=2, kv_heads=1, scale=6.0)
    sampler = made(request.param, policy)
    yield policy, sampler
    sampler.close()


@pytest.fixture
def policy(engine: tuple[Policy, Any]) -> Iterator[Policy]:
    """The engine's policy; whatever a test makes of its weights is undone."""
    before = {name: tensor.clone() for name, tensor in engine[0].model.state_dict().items()}
    yield engine[0]
    engine[0].model.load_state_dict(before)


@pytest.fixture
def sampler(engine: tuple[Policy, Any], policy: Policy) -> Any:
    return engine[1]


def plain(**changes: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 1.0, "max_new_tokens": 16, "eos_ids": (2,), **changes})


def flat(groups: list[list[Completion]]) -> list[Completion]:
    return [c for group in groups for c in group]


def ids_of(groups: list[list[Completion]]) -> list[list[list[int]]]:
    return [[c.ids for c in group] for group in groups]


def largest_gap(policy: Policy, requests: list[Request], groups: list[list[Completion]], temperature: float) -> float:
    """The largest difference between a sampler's log-probs and the trainer's."""
    rows = [(r, c) for r, group in zip(requests, groups, strict=True) for c in group]
    width, longest = max(len(r.prompt_ids) for r, _ in rows), max(len(c.ids) for _, c in rows)
    with torch.no_grad():
        scores = score(
            policy.model,
            torch.tensor([[*r.prompt_ids, *[0] * (width - len(r.prompt_ids))] for r, _ in rows]),
            torch.tensor([len(r.prompt_ids) for r, _ in rows]),
            torch.tensor([[*c.ids, *[0] * (longest - len(c.ids))] for _, c in rows]),
            torch.tensor([len(c.ids) for _, c in rows]),
            temperature=temperature,
        )
    found = torch.tensor([[*c.logprobs, *[0.0] * (longest - len(c.ids))] for _, c in rows])
    return float((scores.logprobs_NT - found).abs().max())


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_are_the_trainers_at_the_sampling_temperature(
    policy: Policy, sampler: Any, temperature: float
) -> None:
    groups = sampler.generate(REQUESTS, plain(temperature=temperature), STREAM)
    assert [len(g) for g in groups] == [r.n for r in REQUESTS]
    assert {c.finish for c in flat(groups)} == {"eos", "length"}
    assert largest_gap(policy, REQUESTS, groups, temperature) <= GAP


@pytest.mark.parametrize("truncation", [{"top_k": 5}, {"top_p": 0.7}, {"min_p": 0.2}, {"top_k": 8, "top_p": 0.8}])
def test_truncated_sampling_reports_log_probs_under_the_same_truncation(
    policy: Policy, sampler: Any, truncation: dict[str, Any]
) -> None:
    params = plain(temperature=0.9, **truncation)
    groups = sampler.generate(REQUESTS, params, STREAM)
    for request, group in zip(REQUESTS, groups, strict=True):
        for completion in group:
            with torch.no_grad():
                logits = policy.model(torch.tensor([[*request.prompt_ids, *completion.ids]])).logits[0]
            kept = sampling_logprobs(logits[len(request.prompt_ids) - 1 : -1], params)
            expected = kept.gather(1, torch.tensor(completion.ids)[:, None])[:, 0]
            assert completion.logprobs == pytest.approx(expected.tolist(), abs=GAP)
    assert max(x for c in flat(groups) for x in c.logprobs) > max(
        x for c in flat(sampler.generate(REQUESTS, plain(temperature=2.0), STREAM)) for x in c.logprobs
    )


def test_greedy_equals_transformers_generate(policy: Policy, sampler: Any) -> None:
    groups = sampler.generate(REQUESTS, plain(temperature=0.0), STREAM)
    for request, group in zip(REQUESTS, groups, strict=True):
        ids = torch.tensor([request.prompt_ids])
        out = policy.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False)
        assert [c.ids for c in group] == [out[0, ids.shape[1] :].tolist()] * request.n
        assert set(group[0].logprobs) == {0.0}


def test_every_engine_draws_what_the_reference_draws(policy: Policy, sampler: Any) -> None:
    for changes in ({}, {"temperature": 0.7, "top_p": 0.9}, {"top_k": 3}):
        reference = TorchSampler(policy.model).generate(REQUESTS, plain(**changes), STREAM)
        assert ids_of(sampler.generate(REQUESTS, plain(**changes), STREAM)) == ids_of(reference)


def test_a_seed_draws_the_same_again_and_alone_and_in_any_order(sampler: Any) -> None:
    whole = ids_of(sampler.generate(REQUESTS, plain(), STREAM))
    assert ids_of(sampler.generate(REQUESTS, plain(), STREAM)) == whole
    assert ids_of(sampler.generate(REQUESTS[::-1], plain(), STREAM)) == whole[::-1]
    for request, group in zip(REQUESTS, whole, strict=True):
        last = Request(request.uid, request.prompt_ids, 1, draw=request.draw, first_sample=request.n - 1)
        assert ids_of(sampler.generate([last], plain(), STREAM)) == [[group[-1]]]
    assert ids_of(sampler.generate(REQUESTS, plain(), StreamKey(seed=2, iteration=0))) != whole
    assert ids_of(sampler.generate(REQUESTS, plain(), StreamKey(seed=1, iteration=1))) != whole
    assert len({tuple(ids) for ids in whole[0]}) > 1


def test_the_gap_stays_at_rounding_while_training_with_a_large_step(policy: Policy, sampler: Any) -> None:
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.5)
    drawn = []
    for _ in range(3):
        groups = sampler.generate(REQUESTS[:2], plain(), STREAM)
        assert largest_gap(policy, REQUESTS[:2], groups, 1.0) <= GAP
        drawn.append(ids_of(groups))
        (completion, *_) = groups[0]
        args = [torch.tensor(x) for x in ([REQUESTS[0].prompt_ids], [4], [completion.ids], [len(completion.ids)])]
        optimizer.zero_grad()
        score(policy.model, *args, temperature=1.0).logprobs_NT.mean().backward()
        optimizer.step()
        sampler.refresh()
    assert drawn[0] != drawn[1] != drawn[2]


def test_a_change_that_no_counter_sees_is_used_after_refresh(policy: Policy, sampler: Any) -> None:
    before = sampler.generate(REQUESTS, plain(), STREAM)
    weight = policy.model.model.layers[0].mlp.down_proj.weight
    weight.data.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(3)))
    sampler.refresh()
    after = sampler.generate(REQUESTS, plain(), STREAM)
    assert largest_gap(policy, REQUESTS, after, 1.0) <= GAP
    assert ids_of(after) != ids_of(before)


def test_nothing_cached_of_a_prompt_outlives_an_update(policy: Policy, sampler: Any) -> None:
    params = plain(max_new_tokens=8)
    before = sampler.generate([LONG], params, STREAM)
    assert largest_gap(policy, [LONG], before, 1.0) <= GAP
    with torch.no_grad():
        policy.model.model.embed_tokens.weight.mul_(1.5)
        policy.model.model.layers[0].self_attn.k_proj.weight.mul_(-1.0)
    after = sampler.generate([LONG], params, STREAM)
    assert largest_gap(policy, [LONG], after, 1.0) <= GAP
    assert largest_gap(policy, [LONG], before, 1.0) > 100 * GAP


@pytest.mark.parametrize("engine_name", ENGINES)
def test_an_adapter_is_part_of_what_is_drawn_trained_or_switched_off(engine_name: str) -> None:
    installed(engine_name)
    base = tiny_policy(hidden_size=64, heads=2, kv_heads=1, scale=6.0)
    plain_draw = TorchSampler(base.model).generate(REQUESTS, plain(), STREAM)
    policy = adapters.add_adapter(base, LoraSection(rank=4), base=adapters.Base("base", base.weights_hash), seed=0)
    sampler = made(engine_name, policy)
    optimizer = torch.optim.SGD([p for p in policy.model.parameters() if p.requires_grad], lr=0.3)
    drawn = []
    for _ in range(3):
        groups = sampler.generate(REQUESTS, plain(), STREAM)
        assert largest_gap(policy, REQUESTS, groups, 1.0) <= GAP
        drawn.append(ids_of(groups))
        args = [torch.tensor(x) for x in ([REQUESTS[0].prompt_ids], [4], [groups[0][0].ids], [len(groups[0][0].ids)])]
        optimizer.zero_grad()
        score(policy.model, *args, temperature=1.0).logprobs_NT.mean().backward()
        optimizer.step()
    assert drawn[0] == ids_of(plain_draw)
    assert drawn[0] != drawn[1] != drawn[2]
    with adapters.using(adapters.base_of(policy)):
        assert ids_of(sampler.generate(REQUESTS, plain(), STREAM)) == drawn[0]
    again = sampler.generate(REQUESTS, plain(), STREAM)
    assert largest_gap(policy, REQUESTS, again, 1.0) <= GAP
    assert ids_of(again) != drawn[0]
    sampler.close()


def test_continuing_a_sample_from_its_own_prefix_gives_the_rest_of_it(sampler: Any) -> None:
    request = REQUESTS[0]
    (group,) = sampler.generate([request], plain(max_new_tokens=12), STREAM)
    cuts = [len(c.ids) // 2 for c in group]
    for j, (completion, cut) in enumerate(zip(group, cuts, strict=True)):
        if cut == 0:
            continue
        rest = Request("a", request.prompt_ids, 1, first_sample=j, prefix_ids=tuple(completion.ids[:cut]))
        ((again,),) = sampler.generate([rest], plain(max_new_tokens=12 - cut), STREAM)
        assert (again.ids, again.finish) == (completion.ids[cut:], completion.finish)
        assert again.logprobs == pytest.approx(completion.logprobs[cut:], abs=GAP)
    assert any(cuts)


def test_either_of_two_end_ids_ends_a_sample_and_is_kept(sampler: Any) -> None:
    free = flat(sampler.generate(REQUESTS, plain(eos_ids=()), STREAM))
    assert {len(c.ids) for c in free} == {16}
    second = free[0].ids[3]
    ended = flat(sampler.generate(REQUESTS, plain(eos_ids=(2, second)), STREAM))
    for whole, completion in zip(free, ended, strict=True):
        end = next((i for i, token in enumerate(whole.ids) if token in (2, second)), None)
        assert completion.ids == (whole.ids if end is None else whole.ids[: end + 1])
        assert completion.finish == ("length" if end is None else "eos")
        assert len(completion.logprobs) == len(completion.ids)
    assert second in {c.ids[-1] for c in ended}


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_no_sample_is_longer_than_asked_and_a_last_token_may_be_the_end(sampler: Any, limit: int) -> None:
    longer = flat(sampler.generate(REQUESTS, plain(), STREAM))
    cut = flat(sampler.generate(REQUESTS, plain(max_new_tokens=limit), STREAM))
    assert [c.ids for c in cut] == [c.ids[:limit] for c in longer]
    assert [c.finish for c in cut] == ["eos" if c.ids[-1] == 2 else "length" for c in cut]


def text_of(policy: Policy, ids: list[int]) -> str:
    return policy.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def test_the_token_that_completes_a_stop_string_ends_a_sample(policy: Policy, sampler: Any) -> None:
    free = flat(sampler.generate(REQUESTS, plain(max_new_tokens=24), STREAM))
    pair = next(text_of(policy, c.ids[4:6]) for c in free if len(c.ids) > 8)
    params = plain(max_new_tokens=24, stop=(pair, "never drawn at all"))
    seen = set()
    for whole, completion in zip(free, flat(sampler.generate(REQUESTS, params, STREAM)), strict=True):
        ends = (n for n in range(1, len(whole.ids) + 1) if pair in text_of(policy, whole.ids[:n]))
        end = next(ends, None)
        assert completion.ids == whole.ids[:end]
        assert completion.finish == (whole.finish if end is None else "stop")
        assert completion.logprobs == pytest.approx(whole.logprobs[:end], abs=GAP)
        seen.add(completion.finish)
    assert "stop" in seen
    assert len(seen) > 1


def test_a_stop_string_may_begin_in_the_prefix_but_not_in_the_prompt(policy: Policy, sampler: Any) -> None:
    ((whole,),) = sampler.generate([Request("a", (1, 5), 1)], plain(eos_ids=()), STREAM)
    pair = text_of(policy, whole.ids[2:4])
    params = plain(eos_ids=(), max_new_tokens=1, stop=(pair,))
    inside = Request("a", (1, 5), 1, prefix_ids=tuple(whole.ids[:3]))
    before = Request("a", (1, 5, *whole.ids[:3]), 1)
    ((first,),) = sampler.generate([inside], params, STREAM)
    assert (first.ids, first.finish) == (whole.ids[3:4], "stop")
    drawn = {c.finish for c in flat(sampler.generate([Request("a", before.prompt_ids, 40)], params, STREAM))}
    assert drawn == {"length"}


def test_stop_is_asked_at_every_step_and_the_next_call_is_whole(sampler: Any) -> None:
    asked = []

    def should_stop() -> bool:
        asked.append(None)
        return len(asked) > 5

    with pytest.raises(SamplingStopped, match="stopped"):
        sampler.generate(REQUESTS, plain(eos_ids=()), STREAM, should_stop=should_stop)
    assert len(asked) == 6
    assert sampler.generate(REQUESTS, plain(), STREAM) == sampler.generate(REQUESTS, plain(), STREAM)


def test_progress_grows_to_the_total(sampler: Any) -> None:
    seen: list[tuple[int, int]] = []
    sampler.generate(REQUESTS, plain(), STREAM, on_progress=lambda *a: seen.append(a))
    assert seen == sorted(seen)
    assert seen[-1] == (14, 14)


def test_the_process_is_left_as_it_was(policy: Policy, sampler: Any) -> None:
    import random

    policy.model.train()
    torch.use_deterministic_algorithms(True)
    state, python, threads = torch.get_rng_state(), random.getstate(), torch.get_num_threads()
    try:
        sampler.refresh()
        sampler.generate(REQUESTS, plain(), STREAM)
        assert torch.equal(torch.get_rng_state(), state)
        assert random.getstate() == python
        assert torch.get_num_threads() == threads
        assert torch.are_deterministic_algorithms_enabled()
        assert policy.model.training
    finally:
        torch.use_deterministic_algorithms(False)
        policy.model.eval()


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        (Request("a", (), 1), "empty context"),
        (Request("a", (1, 999), 1), "999"),
        (Request("a", (1,), 0), "n=0"),
        (Request("a", (1,) * 250, 1), "256 positions"),
    ],
)
def test_requests_no_engine_can_serve_are_explained(sampler: Any, request_: Request, found: str) -> None:
    with pytest.raises(SamplerError, match=found):
        sampler.generate([request_], plain(), STREAM)
    assert sampler.generate([], plain(), STREAM) == []


def test_stop_strings_without_a_tokenizer_are_refused(sampler: Any) -> None:
    tokenizer, sampler.tokenizer = sampler.tokenizer, None
    with pytest.raises(SamplerError, match="need a tokenizer"):
        sampler.generate(REQUESTS, plain(stop=("x",)), STREAM)
    sampler.tokenizer = tokenizer


def test_an_engine_says_which_versions_draw(sampler: Any) -> None:
    assert f"torch {torch.__version__}" in sampler.engine
    assert {"prefix", "counter_rng", "stop", "min_p", "exact_logprobs"} <= sampler.capabilities


@pytest.mark.parametrize("bad", [{"min_p": 1.5}, {"min_p": -0.1}, {"stop": ("a", "")}])
def test_settings_without_a_meaning_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        plain(**bad)
