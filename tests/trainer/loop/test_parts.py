"""What the parts of an algorithm do in a run: refills, controllers, value head, corrections, and what is loaded for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainer.contract import events as ev
from trainer.contract.exit_codes import ExitCode
from trainer.loop import run as run_module
from trainer.testing.replay import Story, events_of, story_of

NOTHING = {"every": 0, "problems": 0, "final_problems": 0}


@pytest.fixture
def story(run, document, tmp_path: Path):  # type: ignore[no-untyped-def]
    """``story(algorithm, …)`` runs three iterations of a small document and reads them."""

    def make(algorithm: dict[str, Any], **changes: Any) -> Story:
        small = {"prompts_per_iteration": 4, "num_generations": 4, **algorithm}
        changes = {"budget": {"iterations": 3}, "evaluation": NOTHING, "checkpoints": {"every": 0}, **changes}
        assert run(document(algorithm=small, **changes), tmp_path / "r") == ExitCode.FINISHED
        return story_of(tmp_path / "r")

    return make


def values(found: Story, key: str) -> list[Any]:
    return [v for (_, name), v in sorted(found.scalars.items()) if name == key]


def test_dynamic_sampling_draws_other_prompts_until_enough_groups_have_a_signal(story) -> None:  # type: ignore[no-untyped-def]
    found = story({"preset": "dapo", "prompts_per_iteration": 3})
    assert max(values(found, "dapo/rounds")) > 1
    for groups in found.rollouts.values():
        uids = [g["uid"] for g in groups]
        assert len(uids) == len(set(uids))
        assert sum(0 < g["c"] < g["n"] for g in groups) >= 3
    assert values(found, "dapo/starved") == [0.0] * 3
    axes = found.axes[3]
    assert axes["discarded_tokens"] > 0
    assert axes["trained_tokens"] == axes["sampled_tokens"] - axes["discarded_tokens"]


def test_where_no_group_has_a_signal_it_says_so_trains_nothing_and_goes_on(story, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    found = story({"preset": "dapo", "max_rounds": 3}, sampling={"max_new_tokens": 1})
    assert values(found, "dapo/starved") == [1.0] * 3
    assert values(found, "dapo/rounds") == [3.0] * 3
    assert found.axes[3]["trained_tokens"] == 0
    logs = [e.event.message for e in events_of(tmp_path / "r") if isinstance(e.event, ev.Log)]
    assert any("4 of 4 groups are missing after 3 rounds" in text and "raise" in text.lower() for text in logs)


def test_dropped_groups_are_in_no_denominator(story) -> None:  # type: ignore[no-untyped-def]
    found = story({"zero_variance": "drop"})
    assert found.axes[3]["discarded_tokens"] > 0
    assert found.axes[3]["trained_tokens"] + found.axes[3]["discarded_tokens"] == found.axes[3]["sampled_tokens"]


def test_the_overlong_punishment_lowers_rewards_and_not_accuracy(story, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    found = story({"overlong_buffer": 4})
    for i in range(1, 4):
        punished = found.scalars[i, "rewards/overlong/mean"]
        assert punished < 0
        accuracy = found.scalars[i, "accuracy/train"]
        assert accuracy == found.scalars[i, "rewards/accuracy/mean"]
        assert found.scalars[i, "reward"] == pytest.approx(accuracy + punished)


def test_masked_truncated_answers_are_sampled_and_not_trained(story) -> None:  # type: ignore[no-untyped-def]
    found = story({"mask_truncated": True}, sampling={"max_new_tokens": 2})
    assert found.axes[3]["trained_tokens"] < found.axes[3]["sampled_tokens"]
    assert found.axes[3]["discarded_tokens"] == 0


def test_an_adaptive_kl_coefficient_moves_towards_its_target(story) -> None:  # type: ignore[no-untyped-def]
    rising = story({"kl_coef": 0.1, "kl_target": 1e-9, "kl_horizon": 16, "num_iterations": 2})
    coefficients = values(rising, "kl_coef")
    assert coefficients[0] == 0.1
    assert coefficients[1] == pytest.approx(0.1 * 0.8)  # in the first iteration the policy still is the base
    assert coefficients[2] == pytest.approx(0.1 * 0.8 * 1.2)


def test_an_adaptive_entropy_bonus_rises_while_entropy_is_low_and_is_off_while_it_is_high(story) -> None:  # type: ignore[no-untyped-def]
    low = story({"entropy_target": 100.0, "entropy_coef": 0.01, "entropy_step": 0.005, "minibatches": 2})
    assert values(low, "entropy_coef") == pytest.approx([0.02, 0.03, 0.04])


def test_the_value_head_learns_to_predict_the_returns(story) -> None:  # type: ignore[no-untyped-def]
    changes = {"preset": "ppo", "kl_coef": 0.0, "value_clip": None, "value_learning_rate": 0.05}
    found = story(changes, budget={"iterations": 12})
    losses = values(found, "value/loss")
    assert sum(losses[-3:]) < 0.7 * sum(losses[:3])
    assert values(found, "value/explained_variance")[0] == pytest.approx(0.0, abs=1e-6)


def test_the_sampler_correction_is_one_for_one_engine(story) -> None:  # type: ignore[no-untyped-def]
    found = story({"mismatch": "sequence_mask", "mismatch_min": 0.5})
    for end in ("min", "mean", "max"):
        assert values(found, f"sampling/importance_sampling_ratio/{end}") == pytest.approx([1.0] * 3, abs=1e-4)
    assert values(found, "sampling/importance_sampling_ratio/outside") == [0.0] * 3


@pytest.mark.parametrize(
    ("algorithm", "every", "loads"),
    [({"kl_coef": 0.0}, 0, 1), ({"kl_coef": 0.0}, 2, 2), ({"kl_coef": 0.0, "measure_kl": False}, 2, 1), ({}, 0, 2)],
)
def test_the_base_is_loaded_a_second_time_only_where_a_kl_is_trained_or_measured(
    algorithm, every, loads, story, monkeypatch
) -> None:  # type: ignore[no-untyped-def]
    real, loaded = run_module.base_policy, []
    monkeypatch.setattr(run_module, "base_policy", lambda *a: loaded.append(a) or real(*a))
    found = story(algorithm, evaluation={**NOTHING, "every": every})
    assert len(loaded) == loads
    assert bool(values(found, "kl")) == (loads == 2)
    if not algorithm:
        assert values(found, "kl")[0] == 0.0
