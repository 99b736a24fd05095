"""Fine-tuning and GRPO on an uploaded file with the trainer itself, from the upload to the evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cast
from tests.webapp.datasets.making import SUMS, make_version
from tests.webapp.launch.test_supervisor import supervise
from tests.webapp.making import claimed
from webapp.evals import curves
from webapp.evals.selectors import evaluations_of
from webapp.launch.services import launch_run
from webapp.metrics.selectors import series_of
from webapp.rollouts import selectors as rollouts
from webapp.runs import storage

ARCHITECTURE = {"hidden_size": 32, "layers": 2, "heads": 4, "kv_heads": 2, "intermediate_size": 64, "max_positions": 32}
EVALUATION = {"every": 0, "problems": 5, "samples": 4, "final_problems": 5, "final_samples": 4}

pytestmark = pytest.mark.slow


def test_fine_tuning_and_grpo_on_an_uploaded_file(cast: Cast, settings: Any, tmp_path: Path) -> None:
    settings.FILES_DIR = tmp_path
    version = make_version(cast.project, SUMS, completion=None)
    task = {"name": "dataset", "params": {"content_hash": version.content_hash}, "problems": 60}
    common = {"task": task, "evaluation": EVALUATION, "sampling": {"max_new_tokens": 6}, "checkpoints": {"every": 0}}
    tuning = launch_run(
        cast.project,
        cast["member"],
        {"kind": "sft", "policy": {"architecture": ARCHITECTURE}, "sft": {"rows": 300, "batch_size": 16},
         "optimizer": {"learning_rate": 0.01, "warmup_steps": 2}, "budget": {"iterations": 25}, **common},
    )  # fmt: skip
    tuned = supervise(claimed(tuning), tmp_path, pause=0.05)
    assert tuned.state == "finished", tuned.message
    base = tuned.checkpoints.get(final=True).policy_uri
    rl = launch_run(
        cast.project,
        cast["member"],
        {"kind": "rl", "policy": {"checkpoint": base}, "budget": {"iterations": 3},
         "algorithm": {"prompts_per_iteration": 4, "num_generations": 4}, **common},
    )  # fmt: skip
    done = supervise(claimed(rl), tmp_path, pause=0.05)
    assert done.state == "finished", done.message
    final = evaluations_of(done, "test")[-1]
    assert (final.set.task, len(final.set.problems)) == ("dataset", 5)
    assert final.set.checker_version.endswith(version.content_hash[:16])
    assert curves.chance_curve(final.set, [1]) is None  # undefined, and drawn as such
    [row, *_] = rollouts.rows_of(rollouts.groups_at(done, 3)[0])
    assert row["judged_by"] in ("int", "none")
    assert any(key.startswith("checker/") for key in series_of(done).values_list("key", flat=True))


def test_a_version_whose_file_was_changed_is_refused_by_the_trainer(cast: Cast, settings: Any, tmp_path: Path) -> None:
    settings.FILES_DIR = tmp_path
    version = make_version(cast.project)
    run = launch_run(
        cast.project,
        cast["member"],
        {"kind": "sft", "policy": {"architecture": ARCHITECTURE}, "evaluation": EVALUATION,
         "task": {"name": "dataset", "params": {"content_hash": version.content_hash}}},
    )  # fmt: skip
    path = storage.path_of(version.uri)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    failed = supervise(claimed(run), tmp_path, pause=0.05)
    assert failed.state == "failed"
    assert "it was changed or damaged" in failed.message
