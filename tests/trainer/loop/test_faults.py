"""Reported faults that only whole runs show. Numbers as in the anchors, section 3."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from trainer.contract import events as ev
from trainer.contract.dataset import Mapping
from trainer.contract.exit_codes import ExitCode
from trainer.data.importers.imports import import_file
from trainer.rewards.prover import MathProver
from trainer.testing.replay import events_of, story_of

QUIET = {"every": 0, "problems": 0, "final_problems": 0}


def test_09_the_engine_samples_with_stale_weights(run: Any, document: Any, tmp_path: Path) -> None:
    large = document(optimizer={"learning_rate": 0.05}, budget={"iterations": 3}, evaluation=QUIET)
    assert run(large, tmp_path / "r") == ExitCode.FINISHED
    story = story_of(tmp_path / "r")
    for iteration in (1, 2, 3):
        assert story.scalars[iteration, "sampling/sampling_logp_difference/max"] < 1e-3
        assert story.axes[iteration]["policy_version"] == iteration
    assert len(set(story.checkpoints.values())) == len(story.checkpoints) > 1


def test_17_training_goes_on_with_an_adapter_and_its_reference_is_the_base_without_it(
    run: Any, document: Any, base: Path, tmp_path: Path
) -> None:
    changes = {"algorithm": {"prompts_per_iteration": 4, "num_generations": 4, "kl_coef": 0.1}, "budget": {"iterations": 2},
               "optimizer": {"learning_rate": 0.02}, "evaluation": QUIET}  # fmt: skip
    first = base / "runs" / "fault-17"
    assert run(document(policy={"checkpoint": "base", "lora": {"rank": 4}}, **changes), first) == ExitCode.FINISHED
    assert story_of(first).scalars[2, "kl"] > 0.0
    start = {"checkpoint": "runs/fault-17/attempts/1/checkpoints/it-00000002"}
    assert run(document(policy=start, **changes), tmp_path / "r") == ExitCode.FINISHED
    assert story_of(tmp_path / "r").scalars[1, "kl"] == 0.0


def stopped_and_resumed(run: Any, document: dict[str, Any], folder: Path, after: int) -> None:
    """An attempt that is asked to stop once an iteration is over, and one that goes on."""
    done = 0

    def echo(event: Any) -> None:
        nonlocal done
        if isinstance(event, ev.Scalars):
            done = event.axes.iteration

    assert run(document, folder, echo=echo, stop=lambda: done >= after) == ExitCode.STOPPED
    assert run(document, folder, resume=True) == ExitCode.FINISHED


def test_20_a_run_resumed_at_the_end_of_an_epoch_skips_or_repeats_prompts(
    run: Any, document: Any, tmp_path: Path
) -> None:
    """Two passes over the rows of a fine-tuning, and over the problems of an RL run, stopped after every iteration."""
    rows = {"name": "mod_chain", "problems": 8}
    tuned = {
        "kind": "sft", "policy": {"checkpoint": "base"}, "task": rows, "sampling": {"max_new_tokens": 4},
        "sft": {"rows": 16, "batch_size": 8, "log_every": 1}, "budget": {"iterations": 4}, "checkpoints": {"every": 1},
        "optimizer": {"learning_rate": 0.01}, "evaluation": QUIET,
    }  # fmt: skip
    trained = document(task=rows, budget={"iterations": 4}, evaluation=QUIET)
    for name, config in (("sft", tuned), ("rl", trained)):
        assert run(config, tmp_path / name) == ExitCode.FINISHED
        whole = story_of(tmp_path / name)
        for after in (1, 2, 3):
            folder = tmp_path / f"{name}-{after}"
            stopped_and_resumed(run, config, folder, after)
            found = story_of(folder)
            drawn = {i: [group["uid"] for group in groups] for i, groups in found.rollouts.items()}
            assert drawn == {i: [group["uid"] for group in groups] for i, groups in whole.rollouts.items()}
            assert found.scalars == whole.scalars
            assert found.checkpoints[4] == whole.checkpoints[4]


def test_27_one_seed_gives_different_runs(run: Any, document: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert run(document(budget={"iterations": 2}), tmp_path / name) == ExitCode.FINISHED
    a, b = story_of(tmp_path / "a"), story_of(tmp_path / "b")
    assert a.scalars == b.scalars
    assert a.rollouts == b.rollouts
    assert a.checkpoints == b.checkpoints
    assert len(events_of(tmp_path / "a")) == len(events_of(tmp_path / "b"))


def test_19_a_run_resumed_amid_accumulation_gets_another_batch(run: Any, document: Any, tmp_path: Path) -> None:
    small = document(budget={"iterations": 3}, evaluation=QUIET, algorithm={
        "prompts_per_iteration": 4, "num_generations": 4, "num_iterations": 2, "minibatches": 2, "microbatch_tokens": 64,
    })  # fmt: skip
    assert run(small, tmp_path / "whole") == ExitCode.FINISHED
    stopped_and_resumed(run, small, tmp_path / "parts", 1)
    whole, parts = story_of(tmp_path / "whole"), story_of(tmp_path / "parts")
    assert parts.rollouts == whole.rollouts
    assert parts.scalars == whole.scalars
    assert parts.checkpoints[3] == whole.checkpoints[3]


def test_23_a_checker_that_hangs_or_crashes_in_a_thread_scores_all_0_or_stops_training(
    run: Any, document: Any, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's main loop in a thread, with a prover that hangs on some answers and dies of others."""
    real = MathProver.__init__

    def hostile(self: MathProver) -> None:
        real(self, seconds=0.2)
        self._worker.module = "tests.trainer.rewards.hostile_prover"

    monkeypatch.setattr(MathProver, "__init__", hostile)
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps({"question": f"{i}+x?", "answer": "x+1"}) + "\n" for i in range(40)))
    mapping = Mapping(prompt="question", answer="answer", answer_type="expr")
    report = import_file(source, source.name, out=base / "fault-23", mapping=mapping)
    params = {"uri": "fault-23/rows.parquet", "content_hash": report["content_hash"], "sha256": report["sha256"]}
    config = document(
        task={"name": "dataset", "params": params, "problems": 8}, budget={"iterations": 2}, evaluation=QUIET
    )
    codes: list[ExitCode] = []
    thread = threading.Thread(target=lambda: codes.append(run(config, tmp_path / "r")))
    thread.start()
    thread.join()
    assert codes == [ExitCode.FINISHED], story_of(tmp_path / "r").last_message
    became = {"0": ": out of time", "1": ": out of time", "2": ": crashed", "3": ": crashed"}
    for part in (e.event for e in events_of(tmp_path / "r") if isinstance(e.event, ev.Rollouts)):
        rows = pq.read_table(tmp_path / "r" / part.uri).to_pylist()
        asked = [row for row in rows if row["judged_by"].startswith("math-verify")]
        for row in asked:
            assert row["judged_by"] == "math-verify" + became.get(row["text"][0], "")
            assert row["reward"] == float(row["text"][0] in "456" and row["end"] != "length")
        failed = sum(row["text"][0] in "0123" for row in asked)
        assert 0 < failed < len(asked)
        assert story_of(tmp_path / "r").scalars[part.axes.iteration, "checker/failed"] == failed / len(rows)


def test_26_entropy_or_length_runs_away_unseen_and_nothing_holds_it(run: Any, document: Any, tmp_path: Path) -> None:
    """What a health rule and a person need: both numbers in every iteration, as the rollouts have them, and a bonus that
    is moved, each time told, until the entropy is in its window."""
    algorithm = {"prompts_per_iteration": 4, "num_generations": 4, "entropy_target": 0.8, "entropy_step": 0.05}
    cut = {"max_new_tokens": 2}
    config = document(algorithm=algorithm, sampling=cut, budget={"iterations": 8}, evaluation=QUIET)
    assert run(config, tmp_path / "r") == ExitCode.FINISHED
    story = story_of(tmp_path / "r")
    before = 0.0
    for part in (e.event for e in events_of(tmp_path / "r") if isinstance(e.event, ev.Rollouts)):
        i = part.axes.iteration
        rows = pq.read_table(tmp_path / "r" / part.uri).to_pylist()
        truncated = sum(row["end"] == "length" for row in rows) / len(rows)
        assert story.scalars[i, "completions/clipped_ratio"] == truncated
        entropy, bonus = story.scalars[i, "entropy"], story.scalars[i, "entropy_coef"]
        assert entropy is not None
        step = 0.05 if entropy <= 0.8 else -0.05
        assert bonus == pytest.approx(max(0.0, before + step))
        before = bonus
    assert before > 0 or story.scalars[8, "entropy"] > 0.8
