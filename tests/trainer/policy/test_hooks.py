"""Activations are those of real tokens only, whatever the padding and the chunks."""

from __future__ import annotations

import pytest
import torch

from trainer.core.errors import ConfigError
from trainer.core.types import Batch, Sample, Trajectory
from trainer.loop.batching import build_batch
from trainer.policy import hooks
from trainer.policy.hooks import channel_statistics, projections
from trainer.testing.tiny import tiny_policy

POLICY = tiny_policy()
NAMES = projections(POLICY.model, "q_proj")


def batch_of(*rows: tuple[list[int], list[int]]) -> Batch:
    samples = []
    for prompt, ids in rows:
        flags = (True,) * len(ids)
        owner = Trajectory([], "u", 0, "eos")
        samples.append(Sample(tuple(prompt), tuple(ids), flags, flags, (0.0,) * len(ids), "g", owner))
    return build_batch(samples, POLICY.pad_id)


BATCH = batch_of(([3, 4, 5, 6], [7, 8]), ([9, 10], [11, 12, 13, 14, 15]), ([5], []))


@torch.no_grad()
def by_hand(tokens: str) -> list[torch.Tensor]:
    """|q| of each layer for each row alone, without padding."""
    seen: list[list[torch.Tensor]] = [[] for _ in NAMES]
    for i in range(BATCH.size):
        p, n = int(BATCH.prefix_len_N[i]), int(BATCH.length_N[i])
        ids = torch.cat([BATCH.prefix_ids_NP[i, :p], BATCH.ids_NT[i, :n]])[None]
        chosen = {"all": slice(None), "prompt": slice(0, p), "response": slice(p, None)}[tokens]

        def see(name: str, output: torch.Tensor, chosen: slice = chosen) -> None:
            seen[NAMES.index(name)].append(output[0, chosen].abs())

        with hooks.outputs_of(POLICY.model, NAMES, see):
            POLICY.model(input_ids=ids)
    return [torch.cat(parts) for parts in seen]


@pytest.mark.parametrize("tokens", ["all", "prompt", "response"])
@pytest.mark.parametrize("at_once", [1, 10, 65536])
def test_statistics_are_of_the_tokens_asked_for(tokens, at_once, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(hooks, "READ_AT_ONCE", at_once)
    found = channel_statistics(POLICY, BATCH, NAMES, tokens)
    for name, expected in zip(NAMES, by_hand(tokens), strict=True):
        assert found[name].count == {"all": 14, "prompt": 7, "response": 7}[tokens] == len(expected)
        torch.testing.assert_close(found[name].absolute, expected.double().sum(0), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found[name].squared, (expected.double() ** 2).sum(0), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found[name].largest, expected.double().amax(0), rtol=1e-5, atol=1e-5)


def test_responses_that_are_all_empty_count_nothing() -> None:
    found = channel_statistics(POLICY, batch_of(([3, 4], []), ([5], [])), NAMES, "response")
    assert [found[n].count for n in NAMES] == [0, 0]
    assert not any(bool(found[n].absolute.any()) for n in NAMES)


def test_no_hook_stays_behind() -> None:
    channel_statistics(POLICY, BATCH, NAMES)
    assert not any(module._forward_hooks for module in POLICY.model.modules())


def test_a_model_without_such_projections_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no module called qkv_proj.*expected one with separate q_proj"):
        projections(POLICY.model, "qkv_proj")
