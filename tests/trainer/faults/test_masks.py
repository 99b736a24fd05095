"""Reported faults about what is trained: masks come from spans, never from ids. Numbers as in the anchors, section 3."""

from __future__ import annotations

import pytest
import torch

from tests.trainer.faults.making import batch_of, trajectory
from trainer.core.types import Node, Span, Trajectory
from trainer.loop.batching import mask_truncated
from trainer.loop.update import scored
from trainer.testing.tiny import tiny_policy

EOS = 2


def test_02_the_attention_of_a_short_answer_misses_tokens_beside_a_long_one() -> None:
    policy = tiny_policy()
    short, long = trajectory([7, EOS], prompt=[5]), trajectory(list(range(4, 14)), prompt=[4, 5, 6, 7, 8])
    together = scored(policy, batch_of([short, long]), 1.0).logprobs_NT
    alone = scored(policy, batch_of([short]), 1.0).logprobs_NT
    assert torch.allclose(together[0, :2], alone[0], atol=1e-5)


def test_03_padding_that_equals_the_end_token_masks_it_or_counts_all() -> None:
    batch = batch_of([trajectory([5, EOS]), trajectory([5, 6, 7, EOS])], pad_id=EOS)
    assert batch.mask_NT.tolist() == [[1.0, 1.0, 0.0, 0.0], [1.0] * 4]
    assert batch.length_N.tolist() == [2, 4]


def test_13_a_mask_is_longer_than_its_ids_after_a_tool_turn() -> None:
    with pytest.raises(ValueError, match="2 ids but 3 logprobs"):
        Span((5, 6), "answer", sampled=True, trained=True, logprobs=(-1.0,) * 3)


def turns(end: str = "eos") -> Trajectory:
    """Few-shot prompt with an assistant's turn, a call, a tool's answer, a final answer."""
    drawn = {"sampled": True, "trained": True, "logprobs": (-1.0, -1.0)}
    spans = [
        Span((4, 5), "prompt", origin="env"),
        Span((6, 7), "prompt", role="assistant", origin="history"),
        Span((8, 9), "call", **drawn),  # type: ignore[arg-type]
        Span((10, 11, 12), "observation", origin="env"),
        Span((13, EOS), "answer", **drawn),  # type: ignore[arg-type]
    ]
    return Trajectory([Node(0, spans)], "p", 0, end)  # type: ignore[arg-type]


def test_14_assistant_turns_of_the_prompt_and_tool_answers_are_trained_on() -> None:
    batch = batch_of([turns()])
    assert batch.mask_NT.tolist() == [[1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0]]
    assert batch.prefix_ids_NP.tolist() == [[4, 5, 6, 7]]
    # The loss mask is no attention mask: what the tool said changes what follows.
    policy, other = tiny_policy(), turns()
    changed = Span((20, 21, 22), "observation", origin="env")
    other.nodes[0].spans[3] = changed
    found = scored(policy, batch_of([turns(), other]), 1.0).logprobs_NT
    assert found[0, :2].tolist() == pytest.approx(found[1, :2].tolist(), abs=1e-5)
    assert float((found[0, 5:] - found[1, 5:]).abs().max()) > 1e-3


def test_15_truncated_samples_are_masked_in_one_mask_only() -> None:
    batch = batch_of([turns("length"), turns()])
    mask_truncated(batch)
    assert batch.mask_NT[0].sum() == 0
    assert batch.mask_NT[1].sum() == 4
    assert batch.samples[0].trajectory.sampled_tokens == 4
    assert batch.length_N.tolist() == [7, 7]
