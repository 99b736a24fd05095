"""What a run does, and how each kind of failure ends: a clear message, nothing lost."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch

from trainer.contract import events as ev
from trainer.contract.exit_codes import ExitCode
from trainer.data.tasks.mod_chain import ModChain
from trainer.loop import checkpoint, checkpoint_files
from trainer.objectives.policy_gradient import PolicyGradient
from trainer.rewards.exact import TaskReward
from trainer.testing.replay import events_of, story_of


def test_a_run_evaluates_trains_and_saves(run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert run(document(), tmp_path / "r") == ExitCode.FINISHED
    story = story_of(tmp_path / "r")
    assert {k[0] for k in story.evaluations if k[1] == "validation"} == {0, 3, 6, 7}
    assert [k[0] for k in story.evaluations if k[1] == "test"] == [7]
    assert set(story.rollouts) == set(range(1, 8))
    assert story.phases == {1: "rl"}
    assert story.scalars[3, "sampling/sampling_logp_difference/max"] < 1e-4
    assert len(checkpoint_files.complete_checkpoints(tmp_path / "r/attempts/1/checkpoints")) == 2
    axes = story.axes[7]
    assert (axes["optimizer_step"], axes["prompts"], axes["rollouts"]) == (7, 28, 112)
    assert axes["sampled_tokens"] == axes["trained_tokens"] > 112


def test_a_run_on_truncated_sampling_trains_on_the_log_probs_of_its_sampler(run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    changes = {
        "sampling": {"max_new_tokens": 4, "top_k": 4, "top_p": 0.8},
        "algorithm": {"prompts_per_iteration": 4, "num_generations": 4, "kl_coef": 0.1},
    }
    assert run(document(**changes), tmp_path / "r") == ExitCode.FINISHED
    scalars = story_of(tmp_path / "r").scalars
    for iteration in range(1, 8):
        assert scalars[iteration, "sampling/sampling_logp_difference/max"] < 1e-4
        assert scalars[iteration, "sampling/outside_kept"] == 0
    assert scalars[1, "kl"] == 0
    assert scalars[7, "kl"] > 0
    assert 0 < scalars[1, "entropy"] < scalars[3, "eval/entropy"]


def test_rollouts_are_kept_with_their_rewards_and_advantages(run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    import pyarrow.parquet as pq

    run(document(), tmp_path / "r")
    part = next(e.event for e in events_of(tmp_path / "r") if isinstance(e.event, ev.Rollouts))
    rows = pq.read_table(tmp_path / "r" / part.uri).to_pylist()
    assert len(rows) == part.rows == 16
    for group in part.groups:
        mine = rows[group.first_row : group.first_row + group.n]
        assert {r["uid"] for r in mine} == {group.uid}
        assert sum(r["correct"] for r in mine) == group.c
        assert sum(r["advantage"] for r in mine) == pytest.approx(0, abs=1e-4)


def test_sps_alternates_and_names_its_phases(run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    methods = [{"slug": "sps", "params": {"k_rl": 2, "prompts": "all"}}]
    assert run(document(methods=methods), tmp_path / "r") == ExitCode.FINISHED
    story = story_of(tmp_path / "r")
    assert story.phases == {1: "rl", 3: "irl", 4: "rl", 6: "irl", 7: "rl"}
    assert [story.scalars[i, "sps/phase"] for i in range(1, 8)] == [0, 0, 1, 0, 0, 1, 0]
    assert story.scalars[3, "sps/demo_distinct"] >= 1
    assert "sps/irl_kl" in {k for i, k in story.scalars if i == 3}
    assert "clip_ratio/low_mean" not in {k for i, k in story.scalars if i == 3}


def test_learning_rate_zero_leaves_the_weights_alone(run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    run(document(optimizer={"learning_rate": 0.0}), tmp_path / "r")
    story = story_of(tmp_path / "r")
    assert len(set(story.checkpoints.values())) == 1
    assert story.evaluations[0, "validation"] == story.evaluations[7, "validation"]


@pytest.mark.parametrize(
    "budget", [{"iterations": 50, "sampled_tokens": 60}, {"iterations": 50, "device_seconds": 1e-9}]
)
def test_the_first_limit_ends_the_run(run, document, tmp_path: Path, budget: dict[str, float]) -> None:  # type: ignore[no-untyped-def]
    assert run(document(budget=budget), tmp_path / "r") == ExitCode.FINISHED
    assert max(story_of(tmp_path / "r").axes) < 5


def test_a_missing_base_is_named_with_where_it_was_looked_for(run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert run(document(policy={"checkpoint": "nowhere"}), tmp_path / "r") == ExitCode.CONFIG
    assert "nowhere" in story_of(tmp_path / "r").last_message


def test_a_sequence_longer_than_the_model_is_refused_before_sampling(run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert run(document(sampling={"max_new_tokens": 40}), tmp_path / "r") == ExitCode.CONFIG
    assert "lower sampling.max_new_tokens" in story_of(tmp_path / "r").last_message


def test_a_nan_loss_is_shown_and_ends_the_run_with_the_weights_untouched(run, document, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    real = PolicyGradient.terms

    def broken(self, micro, scores, ctx):  # type: ignore[no-untyped-def]
        terms = real(self, micro, scores, ctx)
        if ctx.iteration == 4:
            terms[0] = type(terms[0])("policy", terms[0].value * torch.nan, 1.0, terms[0].aggregation)
        return terms

    monkeypatch.setattr(PolicyGradient, "terms", broken)
    assert run(document(), tmp_path / "r") == ExitCode.NUMERIC
    story = story_of(tmp_path / "r")
    assert story.scalars[4, "loss"] is None
    assert "learning_rate" in story.last_message
    newest = checkpoint_files.newest_checkpoint(tmp_path / "r")
    assert newest is not None
    assert newest.name == "it-00000002"


def test_a_method_that_raises_is_named_with_its_slot_and_line(run, document, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    def broken(self, group, ctx):  # type: ignore[no-untyped-def]
        return {}["no such reward"]

    monkeypatch.setattr(TaskReward, "score", broken)
    assert run(document(), tmp_path / "r") == ExitCode.METHOD
    message = story_of(tmp_path / "r").last_message
    assert "TaskReward" in message
    assert "slot 'reward'" in message
    assert "KeyError" in message


def test_a_full_disk_keeps_the_older_checkpoint_and_resumes_when_there_is_room(
    run, document, tmp_path, monkeypatch
) -> None:  # type: ignore[no-untyped-def]
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    real = checkpoint.save_file
    saved = []

    def save(tensors, path):  # type: ignore[no-untyped-def]
        saved.append(path)
        return full() if "it-00000004" in str(path) else real(tensors, path)

    monkeypatch.setattr(checkpoint, "save_file", save)
    assert run(document(), tmp_path / "r") == ExitCode.STORAGE
    message = story_of(tmp_path / "r").last_message
    assert "No space left" in message
    assert "resume" in message
    assert [p.name for p in checkpoint_files.complete_checkpoints(tmp_path / "r/attempts/1/checkpoints")] == [
        "it-00000002"
    ]
    assert not list((tmp_path / "r/attempts/1/checkpoints").glob(".*"))
    monkeypatch.undo()
    assert run(document(), tmp_path / "r", resume=True) == ExitCode.FINISHED


def test_a_run_goes_on_when_the_checker_raises_and_says_so(run, document, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    real = ModChain.score

    def broken(self, completion, prompt):  # type: ignore[no-untyped-def]
        if "7" in completion:
            raise KeyError(completion)
        return real(self, completion, prompt)

    monkeypatch.setattr(ModChain, "score", broken)
    assert run(document(budget={"iterations": 2}), tmp_path / "r") == ExitCode.FINISHED
    shares = [value for (_, key), value in story_of(tmp_path / "r").scalars.items() if key == "checker/failed"]
    assert max(shares) > 0
    logged = [e.event.message for e in events_of(tmp_path / "r") if isinstance(e.event, ev.Log)]
    told = [text for text in logged if "checker of mod_chain raised KeyError" in text]
    assert told
    assert len(told) == len(set(told))
