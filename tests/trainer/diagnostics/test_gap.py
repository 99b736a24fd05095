"""The statistics of the gap between sampler and trainer, on literal numbers."""

from __future__ import annotations

import math

import pytest
import torch

from trainer.diagnostics.gap import Gap


def test_equal_log_probs_have_no_gap_and_a_full_sample() -> None:
    gap = Gap()
    gap.add(torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.0, -2.0]]))
    assert gap.metrics() == {
        "sampling/sampling_logp_difference/mean": 0.0, "sampling/sampling_logp_difference/max": 0.0,
        "sampling/kl/k1": 0.0, "sampling/kl/k3": 0.0, "sampling/effective_sample_size": 1.0,
    }  # fmt: skip


def test_the_numbers_of_two_known_weights() -> None:
    gap = Gap()
    gap.add(torch.tensor([[math.log(0.5), math.log(0.4)]]), torch.tensor([[math.log(0.25), math.log(0.8)]]))
    found = gap.metrics()
    assert found["sampling/sampling_logp_difference/mean"] == pytest.approx(math.log(2), abs=1e-6)
    assert found["sampling/sampling_logp_difference/max"] == pytest.approx(math.log(2), abs=1e-6)
    assert found["sampling/kl/k1"] == pytest.approx(0, abs=1e-6)
    assert found["sampling/kl/k3"] == pytest.approx((2 - 1 - math.log(2) + 0.5 - 1 + math.log(2)) / 2, abs=1e-6)
    # w = 2 and 1/2: 2.5² / (2 · 4.25)
    assert found["sampling/effective_sample_size"] == pytest.approx(6.25 / 8.5, abs=1e-6)


def test_four_weights_of_the_reference_have_two_effective_ones() -> None:
    gap = Gap()
    gap.add(torch.tensor([[math.log(4), 0.0, 0.0, -math.inf]]), torch.zeros(1, 4))
    assert gap.metrics()["sampling/effective_sample_size"] == pytest.approx(0.5, abs=1e-6)


def test_parts_add_up_and_what_was_not_drawn_is_left_out() -> None:
    trainer, sampler = torch.tensor([[-1.0, -3.0, -5.0]]), torch.tensor([[-1.5, -2.0, math.nan]])
    whole, parts = Gap(), Gap()
    whole.add(trainer, sampler)
    for t in range(3):
        parts.add(trainer[:, t : t + 1], sampler[:, t : t + 1])
    assert whole.metrics() == pytest.approx(parts.metrics())
    assert whole.tokens == 2
    assert Gap().metrics() == {}
