"""What a launch will cost, and what is odd about it."""

from __future__ import annotations

from webapp.launch.preview import costs, warnings
from webapp.launch.services import resolved


def test_the_cost_counts_every_answer() -> None:
    config = resolved({"kind": "rl", "policy": {"checkpoint": "b"}})
    found = {cost.title: (cost.count, cost.tokens) for cost in costs(config)}
    # 60 × 32 × 16 rollouts of up to 24 tokens; validations at the start, after 10, ..., 50 and at the end.
    assert found == {
        "Training answers": (30720, 737280), "7 validations": (11200, 268800), "Final evaluation": (12800, 307200),
    }  # fmt: skip


def test_a_token_limit_below_the_longest_answer_is_a_warning() -> None:
    config = resolved({"kind": "rl", "policy": {"checkpoint": "b"}, "sampling": {"max_new_tokens": 3}})
    assert any("would be cut off" in text for text in warnings(config))
    assert not any(
        "would be cut off" in text for text in warnings(resolved({"kind": "rl", "policy": {"checkpoint": "b"}}))
    )
