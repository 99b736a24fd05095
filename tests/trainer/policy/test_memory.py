"""No tensor of sequences × tokens × vocabulary is made, in the forward pass or in backward."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import LlamaConfig, LlamaForCausalLM

from trainer.policy.scoring import score

ROWS, PROMPT, TOKENS, VOCABULARY, HIDDEN = 6, 5, 40, 4000, 8
EVERYTHING = ROWS * TOKENS * VOCABULARY


class Largest(TorchDispatchMode):
    """The most elements of a tensor that any operation gave."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.elements = max(self.elements, leaf.numel())
        return out


def largest(limit: int, *, entropy_grad: bool = False) -> int:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    model = LlamaForCausalLM(config)
    prompt, ids = torch.randint(VOCABULARY, (ROWS, PROMPT)), torch.randint(VOCABULARY, (ROWS, TOKENS))
    lengths = torch.full((ROWS,), PROMPT), torch.full((ROWS,), TOKENS)
    with Largest() as seen:
        found = score(model, prompt, lengths[0], ids, lengths[1], temperature=1.0, entropy_grad=entropy_grad,
                      logit_elements=limit)  # fmt: skip
        (found.logprobs_NT.sum() + (found.entropy_NT.sum() if entropy_grad else 0.0)).backward()
    assert all(p.grad is not None and math.isfinite(float(p.grad.sum())) for p in model.parameters())
    return seen.elements


@pytest.mark.parametrize("entropy_grad", [False, True])
def test_logits_stay_within_their_bound(entropy_grad: bool) -> None:
    bound = 10 * VOCABULARY
    assert largest(bound, entropy_grad=entropy_grad) <= bound
    # What is counted would be seen, were it made.
    assert largest(EVERYTHING, entropy_grad=entropy_grad) >= EVERYTHING


def test_other_architectures_take_few_sequences_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.policy.scoring.why_not_lean", lambda *_, **__: "for this test")
    one_sequence = (PROMPT + TOKENS) * VOCABULARY
    assert largest(one_sequence) <= one_sequence < EVERYTHING
