"""The torch sampler's own: its two paths, its cache, its statistics. What every engine promises is in test_engines."""

import math

import pytest
import torch

from trainer.core.errors import ConfigError
from trainer.policy.scoring import score
from trainer.rollout.sampler import Request, SamplingParams, StreamKey, sample_keys
from trainer.rollout.torch_sampler import TorchSampler
from trainer.testing.tiny import tiny_policy

STREAM = StreamKey(seed=1, iteration=0)
MODELS = {
    "llama": tiny_policy().model,
    "qwen2": tiny_policy(family="qwen2", tie_embeddings=False).model,
}
REQUESTS = [
    Request("a", (1, 5, 6, 7), 5),
    Request("b", (1, 9), 3),
    Request("c", (1, 9, 3, 4, 5, 6, 7, 8, 9, 10, 11), 4),
    Request("d", (1, 9), 2, draw=1),
]


def sampler(family="llama", *, path="lean", max_rows=None):
    made = TorchSampler(MODELS[family], max_rows=max_rows)
    assert made.fallback_reason is None
    if path == "generic":
        made.fallback_reason = "forced by the test"
    return made


def plain(**changes):
    return SamplingParams(**{"temperature": 1.0, "max_new_tokens": 16, "eos_ids": (2,), **changes})


def ids_of(groups):
    return [[c.ids for c in group] for group in groups]


@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize("path", ["lean", "generic"])
@pytest.mark.parametrize("max_rows", [3, 64])
def test_greedy_equals_transformers_generate(family, path, max_rows):
    groups = sampler(family, path=path, max_rows=max_rows).generate(REQUESTS, plain(temperature=0.0), STREAM)
    for request, group in zip(REQUESTS, groups, strict=True):
        ids = torch.tensor([request.prompt_ids])
        out = MODELS[family].generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False)
        expected = out[0, ids.shape[1] :].tolist()
        assert [c.ids for c in group] == [expected] * request.n
        assert group[0].finish == ("eos" if expected[-1] == 2 else "length")


@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize("path", ["lean", "generic"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_equal_scoring(family, path, temperature):
    groups = sampler(family, path=path, max_rows=4).generate(REQUESTS, plain(temperature=temperature), STREAM)
    for request, group in zip(REQUESTS, groups, strict=True):
        for completion in group:
            count = len(completion.ids)
            assert len(completion.logprobs) == count
            with torch.no_grad():
                scores = score(
                    MODELS[family],
                    torch.tensor([request.prompt_ids]),
                    torch.tensor([len(request.prompt_ids)]),
                    torch.tensor([completion.ids]),
                    torch.tensor([count]),
                    temperature=temperature,
                )
            assert completion.logprobs == pytest.approx(scores.logprobs_NT[0].tolist(), abs=1e-5)


@pytest.mark.parametrize("path", ["lean", "generic"])
def test_a_sample_is_the_same_alone_and_in_any_mix(path):
    whole = ids_of(sampler(path=path).generate(REQUESTS, plain(), STREAM))
    for max_rows in (1, 5):
        assert ids_of(sampler(path=path, max_rows=max_rows).generate(REQUESTS, plain(), STREAM)) == whole
    assert ids_of(sampler(path=path).generate(REQUESTS[::-1], plain(), STREAM)) == whole[::-1]
    for request, group in zip(REQUESTS, whole, strict=True):
        for j in (0, request.n - 1):
            alone = Request(request.uid, request.prompt_ids, 1, draw=request.draw, first_sample=j)
            assert ids_of(sampler(path=path).generate([alone], plain(), STREAM)) == [[group[j]]]


def test_both_paths_draw_the_same_samples():
    lean, generic = (sampler(path=p).generate(REQUESTS, plain(), STREAM) for p in ("lean", "generic"))
    assert ids_of(lean) == ids_of(generic)


def test_long_samples_cross_cache_blocks_unchanged():
    params = plain(max_new_tokens=140, eos_ids=())
    lean, generic = (sampler(path=p).generate(REQUESTS[:2], params, STREAM) for p in ("lean", "generic"))
    assert {len(c.ids) for group in lean for c in group} == {140}
    for a, b in zip(lean[0], generic[0], strict=True):
        # One rounding may tip a token near the end of 140; log-probs before it must agree.
        same = next((i for i, (x, y) in enumerate(zip(a.ids, b.ids, strict=True)) if x != y), 140)
        assert same > 70
        assert a.logprobs[:same] == pytest.approx(b.logprobs[:same], abs=1e-4)


@pytest.mark.parametrize(
    "other",
    [
        StreamKey(seed=2, iteration=0),
        StreamKey(seed=1, iteration=1),
        StreamKey(seed=1, iteration=0, scope="child"),
        StreamKey(seed=1, iteration=0, policy="teacher"),
        StreamKey(seed=1, iteration=0, purpose="eval"),
    ],
)
def test_every_stream_coordinate_changes_the_numbers(other):
    assert sample_keys(STREAM, REQUESTS[0]) != sample_keys(other, REQUESTS[0])
    assert ids_of(sampler().generate(REQUESTS, plain(), other)) != ids_of(sampler().generate(REQUESTS, plain(), STREAM))


def test_every_request_coordinate_changes_the_numbers():
    base = Request("a", (1, 5), 2)
    variants = [Request("x", (1, 5), 2), Request("a", (1, 5), 2, draw=1), Request("a", (1, 5), 2, node=1)]
    assert len({tuple(sample_keys(STREAM, r)) for r in [base, *variants]}) == 4
    assert sample_keys(STREAM, Request("a", (1, 5), 1, first_sample=1)) == sample_keys(STREAM, base)[1:]
    assert len(set(sample_keys(STREAM, base))) == 2


def test_padding_equal_to_end_of_sequence_changes_nothing():
    policy = tiny_policy()
    before = TorchSampler(policy.model).generate(REQUESTS, plain(), STREAM)
    policy.model.config.pad_token_id = 2
    policy.model.generation_config.pad_token_id = 2
    policy.tokenizer.pad_token = policy.tokenizer.eos_token
    after = TorchSampler(policy.model).generate(REQUESTS, plain(), STREAM)
    assert after == before
    ended = [c for group in after for c in group if c.finish == "eos"]
    assert ended
    assert all(c.ids[-1] == 2 for c in ended)


@pytest.mark.parametrize("params", [{}, {"temperature": 0.5}, {"top_k": 5}, {"top_p": 0.7}])
def test_frequencies_match_the_models_softmax(params):
    model = tiny_policy(scale=2.0).model
    request = Request("a", (1, 5, 6), 4000)
    chosen = plain(max_new_tokens=1, **params)
    (group,) = TorchSampler(model, max_rows=4000).generate([request], chosen, STREAM)
    with torch.no_grad():
        logits = model(torch.tensor([request.prompt_ids])).logits[0, -1] / chosen.temperature
    if chosen.top_k:
        logits[logits < logits.topk(chosen.top_k).values[-1]] = -math.inf
    p = logits.softmax(-1)
    if chosen.top_p < 1:
        order = p.argsort(descending=True)
        kept = int((p[order].cumsum(0) < chosen.top_p).sum()) + 1
        p[order[kept:]] = 0
        p /= p.sum()
    counts = torch.bincount(torch.tensor([c.ids[0] for c in group]), minlength=len(p)).double()
    assert counts[p == 0].sum() == 0
    support = p > 0
    expected = 4000 * p[support].double()
    chi2 = float(((counts[support] - expected) ** 2 / expected).sum())
    freedom = int(support.sum()) - 1
    # Wilson-Hilferty approximation of the 99.9 % point.
    assert chi2 < freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3
    assert all(c.logprobs[0] == pytest.approx(math.log(p[c.ids[0]]), abs=1e-5) for c in group[:50])


def test_later_tokens_follow_the_conditional_softmax():
    model = tiny_policy(alphabet="0123", scale=6.0).model
    (group,) = TorchSampler(model).generate([Request("a", (1, 5), 3000)], plain(max_new_tokens=2, eos_ids=()), STREAM)
    first = max({c.ids[0] for c in group}, key=lambda t: sum(c.ids[0] == t for c in group))
    after = torch.tensor([c.ids[1] for c in group if c.ids[0] == first])
    with torch.no_grad():
        p = model(torch.tensor([[1, 5, first]])).logits[0, -1].double().softmax(-1)
    counts = torch.bincount(after, minlength=len(p)).double()
    expected = len(after) * p
    big = expected >= 5
    chi2 = float(((counts[big] - expected[big]) ** 2 / expected[big]).sum())
    freedom = int(big.sum())
    assert freedom > 3
    assert chi2 < freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3


def test_other_architectures_fall_back_visibly_and_sample_exactly(caplog):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=20, n_positions=64, n_embd=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2)
    model = GPT2LMHeadModel(config).eval()
    made = TorchSampler(model)
    assert "GPT2LMHeadModel" in made.fallback_reason
    assert "GPT2LMHeadModel" in caplog.text
    assert "generic" in made.capabilities
    assert "lean" not in made.capabilities
    requests = [Request("a", (1, 5, 6, 7), 3), Request("b", (9,), 2)]
    whole = made.generate(requests, plain(), STREAM)
    assert ids_of(TorchSampler(model, max_rows=1).generate(requests, plain(), STREAM)) == ids_of(whole)
    greedy = made.generate(requests, plain(temperature=0.0), STREAM)
    for request, group in zip(requests, greedy, strict=True):
        ids = torch.tensor([request.prompt_ids])
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False, pad_token_id=0
        )
        assert group[0].ids == out[0, ids.shape[1] :].tolist()


def test_a_hook_sends_sampling_to_the_path_that_honours_it():
    policy = tiny_policy()
    plainly = TorchSampler(policy.model).generate(REQUESTS, plain(), STREAM)
    handle = policy.model.model.layers[0].register_forward_hook(lambda _m, _a, out: out * 0.5)
    made = TorchSampler(policy.model)
    assert "hook" in made.fallback_reason
    assert ids_of(made.generate(REQUESTS, plain(), STREAM)) != ids_of(plainly)
    handle.remove()
    made.refresh()
    assert made.fallback_reason is None


@pytest.mark.parametrize(
    "bad", [{"temperature": -1.0}, {"temperature": math.inf}, {"top_p": 0.0}, {"top_k": -1}, {"max_new_tokens": 0}]
)
def test_settings_without_a_meaning_are_refused(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        plain(**bad)


def test_keys_of_samples_are_pinned():
    # A changed key scheme would silently change every run's samples.
    assert sample_keys(StreamKey(0, 0), Request("u", (1,), 1)) == [1713939184703350377]
