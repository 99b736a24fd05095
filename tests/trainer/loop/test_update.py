"""What a part around the optimiser step can do: see and change gradients, refuse a step, take others, undo them all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import trainer.loop.assemble as assembly
from trainer.contract.exit_codes import ExitCode
from trainer.core.slots import Steps, Update
from trainer.testing.replay import Story, story_of

NOTHING = {"every": 0, "problems": 0, "final_problems": 0}


class Recorder(Update):
    """Notes which of its methods are called, and that it is the policy's parameters that it sees."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def before(self, batch: Any, steps: Steps, ctx: Any) -> None:
        self.calls.append("before")

    def gradients(self, step: Any, ctx: Any) -> None:
        assert any(p.grad is not None for p in ctx.policy.model.parameters())
        assert step.norm != step.norm
        self.calls.append("gradients")

    def apply(self, step: Any, proceed: Callable[[], None], ctx: Any) -> None:
        assert step.norm >= 0
        old = ctx.policy.weights_hash
        proceed()
        self.calls.append("apply" if ctx.policy.weights_hash != old else "nothing")

    def after(self, batch: Any, steps: Steps, ctx: Any) -> None:
        self.calls.append("after")


class Refuse(Update):
    """Lets no step through."""

    def apply(self, step: Any, proceed: Callable[[], None], ctx: Any) -> None:
        return


class Halve(Update):
    """Half of every gradient."""

    def gradients(self, step: Any, ctx: Any) -> None:
        for p in ctx.policy.model.parameters():
            p.grad *= 0.5


class Repeat(Update):
    """Trains on the batch of the iteration before, first, and checks what it is promised."""

    def __init__(self) -> None:
        self.last: Any = None

    def before(self, batch: Any, steps: Steps, ctx: Any) -> None:
        if self.last is not None:
            before = steps.scores(self.last).logprobs_NT
            steps.take(self.last)
            assert not torch.equal(before, steps.scores(self.last).logprobs_NT)
        self.last = batch

    def after(self, batch: Any, steps: Steps, ctx: Any) -> None:
        kept = [p.grad for p in ctx.policy.model.parameters()]
        found = steps.gradient(batch)
        assert any(g is not None and bool(g.any()) for g in found)
        assert all(a is b for a, b in zip(kept, (p.grad for p in ctx.policy.model.parameters()), strict=True))


@pytest.fixture
def story(run, document, tmp_path: Path, monkeypatch) -> Callable[..., Story]:  # type: ignore[no-untyped-def]
    """``story(*updates)`` runs three iterations with these parts in the update slot and reads them."""
    real = assembly.assemble

    def make(*updates: Update, **algorithm: Any) -> Story:
        def assemble(config: Any) -> Any:
            parts = real(config)
            parts.updates += updates
            return parts

        monkeypatch.setattr("trainer.loop.train.assemble", assemble)
        small = {"prompts_per_iteration": 4, "num_generations": 4, **algorithm}
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        changes: dict[str, Any] = {"budget": {"iterations": 3}, "evaluation": NOTHING, "checkpoints": {"every": 3}}
        assert run(document(algorithm=small, **changes), folder) == ExitCode.FINISHED, story_of(folder).last_message
        return story_of(folder)

    return make


def test_a_part_is_called_around_every_step_in_declared_order(story) -> None:  # type: ignore[no-untyped-def]
    part = Recorder()
    story(part, minibatches=2)
    assert part.calls == ["before", "gradients", "apply", "gradients", "apply", "after"] * 3
    outer = Recorder()
    found = story(outer, Refuse())
    assert outer.calls == ["before", "gradients", "nothing", "after"] * 3
    assert found.axes[3]["optimizer_step"] == 3


def test_a_part_that_does_nothing_changes_no_bit(story) -> None:  # type: ignore[no-untyped-def]
    assert story(Update()) == story()


def test_gradients_are_changed_before_their_norm_is_taken(story) -> None:  # type: ignore[no-untyped-def]
    plain, half = story(), story(Halve())
    assert half.scalars[1, "grad_norm"] == pytest.approx(plain.scalars[1, "grad_norm"] / 2, rel=1e-5)


def test_a_part_takes_a_step_on_an_earlier_batch_asks_for_scores_and_for_a_gradient_of_its_own(story) -> None:  # type: ignore[no-untyped-def]
    found = story(Repeat())
    assert found.axes[3]["optimizer_step"] == 5
