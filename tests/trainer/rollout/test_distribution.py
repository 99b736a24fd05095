"""The sampling distribution on literal numbers."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.rollout.distribution import choose, inverse_cdf, sampling_logprobs
from trainer.rollout.sampler import SamplingParams

LOGITS = torch.tensor([[math.log(0.5), math.log(0.2), math.log(0.2), math.log(0.1)]])


def probabilities(**params):
    return sampling_logprobs(LOGITS, SamplingParams(**{"temperature": 1.0, **params})).exp()[0].tolist()


def test_temperature_divides_the_logits():
    assert probabilities() == pytest.approx([0.5, 0.2, 0.2, 0.1], abs=1e-6)
    assert probabilities(temperature=0.5) == pytest.approx([25 / 34, 4 / 34, 4 / 34, 1 / 34], abs=1e-6)


def test_top_k_keeps_ties_at_its_border_and_renormalises():
    assert probabilities(top_k=1) == pytest.approx([1, 0, 0, 0])
    assert probabilities(top_k=2) == pytest.approx([5 / 9, 2 / 9, 2 / 9, 0], abs=1e-6)
    assert probabilities(top_k=9) == pytest.approx([0.5, 0.2, 0.2, 0.1], abs=1e-6)


def test_top_p_keeps_the_fewest_tokens_that_reach_the_mass():
    assert probabilities(top_p=0.4) == pytest.approx([1, 0, 0, 0])
    assert probabilities(top_p=0.6) == pytest.approx([5 / 7, 2 / 7, 0, 0], abs=1e-6)
    assert probabilities(top_p=0.85) == pytest.approx([5 / 9, 2 / 9, 2 / 9, 0], abs=1e-6)
    assert probabilities(top_p=1e-9) == pytest.approx([1, 0, 0, 0])


def test_greedy_takes_the_first_of_the_largest_logits_with_log_probability_zero():
    tokens, logprobs = choose(torch.tensor([[0.0, 2.0, 2.0]]), torch.tensor([0.99]), SamplingParams(0.0))
    assert tokens.tolist() == [1]
    assert logprobs.tolist() == [0.0]


@pytest.mark.parametrize(("u", "token"), [(0.0, 0), (0.2499, 0), (0.2501, 2), (0.9999, 2), (1 - 2**-53, 2)])
def test_inverse_cdf_skips_tokens_without_mass(u, token):
    logprobs = torch.tensor([[0.25, 0.0, 0.75, 0.0]]).log()
    assert inverse_cdf(logprobs, torch.tensor([u], dtype=torch.float64)).tolist() == [token]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31), st.floats(0, 1, exclude_max=True), st.integers(1, 5), st.floats(0.01, 1))
def test_chosen_token_always_has_mass(seed, u, top_k, top_p):
    logits = torch.randn(3, 8, generator=torch.Generator().manual_seed(seed)) * 10
    params = SamplingParams(0.7, top_p=top_p, top_k=top_k)
    tokens, logprobs = choose(logits, torch.full((3,), u, dtype=torch.float64), params)
    assert torch.isfinite(logprobs).all()
    assert (tokens < 8).all()
