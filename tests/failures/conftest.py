"""Small real runs to break, and what an undisturbed run of the same document leaves behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cast
from tests.installed.record import record_of
from tests.webapp.launch.test_supervisor import supervise
from tests.webapp.making import claimed
from webapp.launch.services import launch_run, resume_run
from webapp.launch.shutdown import leaving
from webapp.runs.models import Run

Act = Callable[[], Any]

TASK = {"name": "mod_chain", "params": {"terms": 2, "modulus": 5}, "problems": 40}
ARCHITECTURE = {
    "hidden_size": 32, "layers": 1, "heads": 2, "kv_heads": 2, "intermediate_size": 32, "max_positions": 32
}  # fmt: skip


def rl(**changes: Any) -> dict[str, Any]:
    """Fresh weights seldom find an answer: the entropy bonus moves them in every iteration all the same."""
    return {
        "kind": "rl",
        "policy": {"architecture": ARCHITECTURE},
        "task": TASK,
        "sampling": {"max_new_tokens": 3},
        "algorithm": {"prompts_per_iteration": 4, "num_generations": 4, "entropy_coef": 0.01, "kl_coef": 0.01},
        "optimizer": {"learning_rate": 0.003},
        "evaluation": {"every": 6, "problems": 8, "samples": 4, "final_problems": 8, "final_samples": 4},
        "budget": {"iterations": 18},
        "checkpoints": {"every": 4},
        **changes,
    }


def sft(**changes: Any) -> dict[str, Any]:
    """Fine-tuning on the same task."""
    return {
        "kind": "sft",
        "policy": {"architecture": ARCHITECTURE},
        "task": TASK,
        "sampling": {"max_new_tokens": 3},
        "sft": {"rows": 100, "batch_size": 16, "log_every": 1},
        "evaluation": {"every": 6, "problems": 8, "samples": 4, "final_problems": 8, "final_samples": 4},
        "budget": {"iterations": 40},
        "checkpoints": {"every": 4},
        **changes,
    }


SPS = [{"slug": "sps", "params": {"k_rl": 3, "k_irl": 2, "prompts": "all"}}]


@pytest.fixture(autouse=True)
def _nobody_leaves() -> Iterator[None]:
    leaving.clear()
    yield
    leaving.clear()


class Lab:
    """Launches, supervises and resumes runs in this process, with the trainer itself, files in a folder of one's own."""

    def __init__(self, cast: Cast, settings: Any) -> None:
        self.cast, self.settings = cast, settings
        self.pids: list[int] = []

    def launch(self, document: dict[str, Any], files: Path) -> Run:
        self.settings.FILES_DIR = files
        return launch_run(self.cast.project, self.cast["member"], document)

    def supervise(self, run: Run, act: Act = lambda: None) -> Run:
        """The run after its current attempt; `act` is called while the supervisor has nothing to do."""

        def noting() -> None:
            pid = Run.objects.get(pk=run.pk).attempts.get(number=run.attempt_number).pid
            if pid and pid not in self.pids:
                self.pids.append(pid)
            act()

        run = Run.objects.get(pk=run.pk)
        return supervise(claimed(run), self.settings.FILES_DIR, noting)

    def resume(self, run: Run, act: Act = lambda: None) -> Run:
        resume_run(run, self.cast["member"])
        return self.supervise(Run.objects.get(pk=run.pk), act)

    def undisturbed(self, document: dict[str, Any], files: Path) -> dict[str, Any]:
        """What a run of the document leaves when nothing happens to it."""
        done = self.supervise(self.launch(document, files))
        assert done.state == "finished", done.message
        return record_of(done)

    def kill(self, run: Run, *, at: int) -> Act:
        """SIGKILL to the trainer's group, once the run has reached the iteration."""
        killed: list[int] = []

        def act() -> None:
            found = Run.objects.get(pk=run.pk)
            pid = found.attempts.get(number=found.attempt_number).pid
            if found.iteration >= at and pid and not killed:
                killed.append(pid)
                os.killpg(pid, signal.SIGKILL)

        return act


@pytest.fixture
def lab(cast: Cast, settings: Any) -> Iterator[Lab]:
    lab = Lab(cast, settings)
    yield lab
    left = [pid for pid in lab.pids if Path(f"/proc/{pid}").exists()]
    assert not left, f"trainers outlived their test: {left}"
