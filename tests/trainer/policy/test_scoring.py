"""Scoring: the same numbers as one unpadded run of the model, whatever the batch."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.core.errors import ConfigError
from trainer.policy import scoring
from trainer.policy.scoring import score, sequence_logprob
from trainer.testing.tiny import tiny_policy

MODELS = {
    "llama": tiny_policy().model,
    "qwen2": tiny_policy(family="qwen2", tie_embeddings=False, kv_heads=4).model,
}


def pad(rows, width, fill):
    return torch.tensor([list(r) + [fill] * (width - len(r)) for r in rows], dtype=torch.long)


def run(model, prompts, completions, *, temperature=1.0, fill=0, extra=0, **options):
    widest = max(map(len, prompts)), max(map(len, completions)) + extra
    return score(
        model,
        pad(prompts, widest[0] + extra, fill),
        torch.tensor([len(p) for p in prompts]),
        pad(completions, widest[1], fill),
        torch.tensor([len(c) for c in completions]),
        temperature=temperature,
        **options,
    )


def single(model, prompt, completion, temperature):
    """Log-probs and entropies by transformers' forward on one unpadded row, in float64 after the logits."""
    logits = model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1].double() / temperature
    logp = logits.log_softmax(-1)
    return logp.gather(1, torch.tensor(completion)[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


PROMPTS = [(1, 5, 6), (1, 5, 6), (1, 9), (1, 5, 6, 7, 8, 9, 10), (1, 9), (4,)]
COMPLETIONS = [(7, 8, 2), (9,), (4, 4, 4, 4, 4, 4, 2), (0, 2), (), (11, 12, 13, 14)]


@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize("path", ["own", "generic"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_each_row_equals_its_single_unpadded_run(family, path, temperature, monkeypatch):
    if path == "generic":
        monkeypatch.setattr(scoring, "why_not_lean", lambda *_a, **_k: "forced")
    with torch.no_grad():
        got = run(MODELS[family], PROMPTS, COMPLETIONS, temperature=temperature)
        for i, (prompt, completion) in enumerate(zip(PROMPTS, COMPLETIONS, strict=True)):
            if completion:
                logp, entropy = single(MODELS[family], prompt, completion, temperature)
                torch.testing.assert_close(got.logprobs_NT[i, : len(completion)].double(), logp, atol=5e-6, rtol=0)
                torch.testing.assert_close(got.entropy_NT[i, : len(completion)].double(), entropy, atol=5e-6, rtol=0)
            assert not got.logprobs_NT[i, len(completion) :].any()
            assert not got.entropy_NT[i, len(completion) :].any()


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.lists(st.integers(0, 40), max_size=6)),
        min_size=1,
        max_size=6,
    ).filter(lambda rows: any(c for _, c in rows)),
    st.integers(0, 40),
    st.integers(0, 3),
)
def test_padding_ids_and_width_never_show(rows, fill, extra):
    prompts, completions = zip(*rows, strict=True)
    with torch.no_grad():
        a = run(MODELS["llama"], prompts, completions)
        b = run(MODELS["llama"], prompts, completions, fill=fill, extra=extra)
    width = a.logprobs_NT.shape[1]
    torch.testing.assert_close(a.logprobs_NT, b.logprobs_NT[:, :width], atol=5e-6, rtol=0)
    torch.testing.assert_close(a.entropy_NT, b.entropy_NT[:, :width], atol=5e-6, rtol=0)


def test_order_of_rows_only_permutes_the_result():
    order = [4, 2, 0, 5, 3, 1]
    with torch.no_grad():
        a = run(MODELS["llama"], PROMPTS, COMPLETIONS)
        b = run(MODELS["llama"], [PROMPTS[i] for i in order], [COMPLETIONS[i] for i in order])
    torch.testing.assert_close(a.logprobs_NT[order], b.logprobs_NT, atol=5e-6, rtol=0)


@pytest.mark.parametrize("family", MODELS)
def test_gradients_equal_those_of_transformers_forward(family, monkeypatch):
    model = MODELS[family]
    weight = torch.randn(len(PROMPTS), 7, generator=torch.Generator().manual_seed(0))
    gradients = []
    for path in ("own", "generic"):
        if path == "generic":
            monkeypatch.setattr(scoring, "why_not_lean", lambda *_a, **_k: "forced")
        got = run(model, PROMPTS, COMPLETIONS, temperature=0.8, entropy_grad=True)
        loss = (weight * got.logprobs_NT).sum() + 0.3 * got.entropy_NT.sum()
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    for own, generic in zip(*gradients, strict=True):
        torch.testing.assert_close(own, generic, atol=1e-5 * float(generic.abs().max()), rtol=0)


def test_chunked_head_changes_neither_values_nor_gradients():
    model = MODELS["llama"]
    vocabulary = model.config.vocab_size
    results = []
    for elements in (1 << 24, 3 * vocabulary):
        got = run(model, PROMPTS, COMPLETIONS, logit_elements=elements, entropy_grad=True)
        loss = (got.logprobs_NT * 2 + got.entropy_NT).sum()
        results.append((got.logprobs_NT, *torch.autograd.grad(loss, list(model.parameters()))))
    for whole, chunked in zip(*results, strict=True):
        torch.testing.assert_close(whole, chunked, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("grad", [False, True])
def test_no_logit_tensor_exceeds_the_stated_bound(grad, monkeypatch):
    sizes = []
    inner = scoring._choose

    def spy(logits, *args):
        sizes.append(logits.numel())
        return inner(logits, *args)

    monkeypatch.setattr(scoring, "_choose", spy)
    with torch.set_grad_enabled(grad):
        run(MODELS["llama"], PROMPTS, COMPLETIONS, logit_elements=5 * MODELS["llama"].config.vocab_size)
    assert len(sizes) == 4  # 17 tokens in chunks of five
    assert max(sizes) == 5 * MODELS["llama"].config.vocab_size


def test_entropies_carry_no_gradient_unless_asked():
    assert not run(MODELS["llama"], PROMPTS, COMPLETIONS).entropy_NT.requires_grad
    assert run(MODELS["llama"], PROMPTS, COMPLETIONS, entropy_grad=True).entropy_NT.requires_grad
    assert not run(MODELS["llama"], PROMPTS, COMPLETIONS, entropy=False).entropy_NT.any()


def test_entropy_of_known_logits():
    ids = torch.tensor([1])
    for z, temperature, expected in (
        ((2, 1, 0, -1), 1.0, 0.947537),
        ((2, 1, 0, -1), 0.5, 0.455429),
        ((2, 1, -math.inf, -math.inf), 1.0, 0.582203),
        ((0, 0, 0, 0), 1.0, 1.386294),
    ):
        _, entropy = scoring._choose(torch.tensor([z], dtype=torch.float), ids, temperature, True, False)
        assert entropy.item() == pytest.approx(expected, abs=1e-6)


def test_end_of_sequence_equal_to_padding_is_scored_as_a_token():
    with torch.no_grad():
        got = run(MODELS["llama"], [(1, 5), (1, 6)], [(7, 2), (7, 7, 2)], fill=2)
        logp, _ = single(MODELS["llama"], (1, 5), (7, 2), 1.0)
    torch.testing.assert_close(got.logprobs_NT[0, :2].double(), logp, atol=5e-6, rtol=0)
    assert got.logprobs_NT[0, 2] == 0


def test_batch_without_any_token_scores_zero():
    got = run(MODELS["llama"], [(1,), (1, 2)], [(), ()], extra=2)
    assert got.logprobs_NT.shape == (2, 2)
    assert not got.logprobs_NT.any()


def test_replaced_projection_is_called_and_gets_its_gradient():
    model = tiny_policy(seed=3).model

    class Adapter(torch.nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base, self.down = base, torch.nn.Linear(32, 2, bias=False)
            self.up = torch.nn.Linear(2, base.out_features, bias=False)

        def forward(self, x):
            return self.base(x) + self.up(self.down(x))

    torch.manual_seed(0)
    model.model.layers[0].self_attn.q_proj = Adapter(model.model.layers[0].self_attn.q_proj)
    got = run(model, PROMPTS[:1], COMPLETIONS[:1])
    logp, _ = single(model, PROMPTS[0], COMPLETIONS[0], 1.0)
    torch.testing.assert_close(got.logprobs_NT[0].double(), logp, atol=5e-6, rtol=0)
    got.logprobs_NT.sum().backward()
    assert model.model.layers[0].self_attn.q_proj.up.weight.grad.abs().max() > 0


def test_hooked_module_keeps_its_hook_by_the_generic_path():
    model = tiny_policy(seed=4).model
    plain = run(model, PROMPTS[:1], COMPLETIONS[:1]).logprobs_NT
    model.model.layers[0].register_forward_hook(lambda _m, _a, out: out * 0.5)
    hooked = run(model, PROMPTS[:1], COMPLETIONS[:1]).logprobs_NT
    logp, _ = single(model, PROMPTS[0], COMPLETIONS[0], 1.0)
    torch.testing.assert_close(hooked[0].double(), logp, atol=5e-6, rtol=0)
    assert (hooked - plain).abs().max() > 1e-3


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_temperature_without_a_distribution_is_refused(temperature):
    with pytest.raises(ConfigError, match="temperature"):
        run(MODELS["llama"], PROMPTS, COMPLETIONS, temperature=temperature)


def test_lengths_outside_the_tensors_are_refused():
    ids = torch.zeros(1, 2, dtype=torch.long)
    with pytest.raises(ConfigError, match=r"prompt lengths.*expected 1"):
        score(MODELS["llama"], ids, torch.tensor([0]), ids, torch.tensor([1]), temperature=1.0)
    with pytest.raises(ConfigError, match=r"lengths go from 3"):
        score(MODELS["llama"], ids, torch.tensor([1]), ids, torch.tensor([3]), temperature=1.0)


def test_sequence_logprob_sums_under_the_mask_only():
    logprobs = torch.tensor([[-1.0, -2.0, -4.0], [-0.5, -math.inf, -1.0]])
    mask = torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    assert sequence_logprob(logprobs, mask).tolist() == [-5.0, -0.5]
    with pytest.raises(ConfigError, match="shapes"):
        sequence_logprob(logprobs, mask[:, :2])
