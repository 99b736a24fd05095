"""The launch path with the trainer itself, on a tiny fresh model."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cast
from tests.installed import held
from tests.webapp.launch.test_supervisor import supervise
from tests.webapp.making import claimed, document
from webapp.evals.selectors import evaluations_of
from webapp.evals.verdicts import verdict_of
from webapp.launch.services import launch_run, resolved
from webapp.metrics.selectors import load_series, series_of
from webapp.rollouts import selectors as rollouts
from webapp.runs.models import Run
from webapp.runs.selectors import marks, phase_bands
from webapp.runs.services import create_run
from webapp.runs.storage import path_of, run_uri

ITERATIONS = 16


@pytest.mark.slow
def test_a_run_that_is_killed_and_resumed_has_every_iteration_once(cast: Cast, settings: Any, tmp_path: Path) -> None:
    settings.FILES_DIR = tmp_path
    settings.TRAINER_COMMAND = [*held.COMMAND]
    run = launch_run(
        cast.project,
        cast["member"],
        document(
            budget={"iterations": ITERATIONS},
            algorithm={"prompts_per_iteration": 2, "num_generations": 2},
            sampling={"max_new_tokens": 4},
            evaluation={"every": 8, "problems": 4, "samples": 4, "final_problems": 4, "final_samples": 4},
            checkpoints={"every": 2},
        ),
    )

    held.hold(path_of(run_uri(run.pk)), at=3)

    def kill() -> None:
        found = Run.objects.get(pk=run.pk)
        pid = found.attempts.get(number=1).pid
        if found.iteration >= 3 and pid:
            os.killpg(pid, signal.SIGKILL)
            held.release(path_of(run_uri(run.pk)))

    killed = supervise(claimed(run), tmp_path, kill, pause=0.05)
    assert (killed.state, killed.auto_resumes) == ("queued", 1), killed.message
    assert "SIGKILL" in killed.message
    assert killed.iteration == 3

    done = supervise(claimed(Run.objects.get(pk=run.pk)), tmp_path, pause=0.05)
    assert (done.state, done.message) == ("finished", "The run reached its budget.")
    [mark] = marks(done)
    assert (mark["key"], mark["attempt"]) == ("rewind", 2)
    [reward] = load_series(done, ["reward"])
    assert reward.iteration == list(range(1, ITERATIONS + 1))
    assert [(e.name, e.iteration) for e in evaluations_of(done, "validation")] == [
        ("validation", iteration) for iteration in range(0, ITERATIONS + 1, 8)
    ]
    assert evaluations_of(done, "test")[-1].iteration == ITERATIONS
    assert verdict_of(done).kind == "not resolved"
    assert rollouts.iterations_of(done) == list(range(1, ITERATIONS + 1))
    [row, _] = rollouts.rows_of(rollouts.groups_at(done, ITERATIONS)[0])
    assert isinstance(row["text"], str)
    assert [band.name for band in phase_bands(done)] == ["rl"]
    assert done.checkpoints.filter(final=True, retired=False).get().iteration == ITERATIONS
    assert "entropy" in set(series_of(done).values_list("key", flat=True))
    assert done.versions["torch"]


@pytest.mark.slow
def test_a_base_that_is_not_there_is_a_clear_failure(cast: Cast, settings: Any, tmp_path: Path) -> None:
    settings.FILES_DIR = tmp_path
    # Launching refuses it; it may have gone since. Three parts: no name of the hub.
    config = resolved(document(policy={"checkpoint": "runs/7/nowhere"}))
    run = create_run(project=cast.project, name="a run", kind="rl", config=config)
    failed = supervise(claimed(run), tmp_path, pause=0.05)
    assert failed.state == "failed"
    assert "policy.checkpoint: found no model at 'runs/7/nowhere'" in failed.message
    assert failed.attempts.get().exit_code == 2
