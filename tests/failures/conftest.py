"""Small real runs to break, and what an undisturbed run of the same document leaves behind."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.conftest import Cast
from tests.installed import held
from tests.installed.record import record_of
from tests.webapp.launch.test_supervisor import supervise
from tests.webapp.making import claimed
from webapp.launch.services import launch_run, resume_run
from webapp.launch.shutdown import leaving
from webapp.runs.models import Run
from webapp.runs.storage import path_of, run_uri

# Seconds between two looks at a trainer that takes seconds to start.
PAUSE = 0.05
Act = Callable[[], Any]


@pytest.fixture(autouse=True)
def _nobody_leaves() -> Iterator[None]:
    leaving.clear()
    yield
    leaving.clear()


class Lab:
    """Launches, supervises and resumes runs in this process, with the trainer itself, files in a folder of one's own."""

    # What a document leaves is the same each time, so it is found out once.
    known: ClassVar[dict[str, dict[str, Any]]] = {}

    def __init__(self, cast: Cast, settings: Any) -> None:
        self.cast, self.settings = cast, settings
        self.pids: list[int] = []
        settings.TRAINER_COMMAND = [*held.COMMAND]

    def launch(self, document: dict[str, Any], files: Path) -> Run:
        """A queued run that only goes on after an interruption when `resume` says so."""
        self.settings.FILES_DIR = files
        return launch_run(self.cast.project, self.cast["member"], document, auto_resume=0)

    def supervise(self, run: Run, act: Act = lambda: None) -> Run:
        """The run after its current attempt; `act` is called while the supervisor has nothing to do."""

        def noting() -> None:
            pid = Run.objects.get(pk=run.pk).attempts.get(number=run.attempt_number).pid
            if pid and pid not in self.pids:
                self.pids.append(pid)
            act()

        run = Run.objects.get(pk=run.pk)
        return supervise(claimed(run), self.settings.FILES_DIR, noting, pause=PAUSE)

    def resume(self, run: Run, act: Act = lambda: None) -> Run:
        resume_run(run, self.cast["member"])
        return self.supervise(Run.objects.get(pk=run.pk), act)

    def undisturbed(self, document: dict[str, Any], files: Path) -> dict[str, Any]:
        """What a run of the document leaves when nothing happens to it."""
        name = json.dumps(document, sort_keys=True)
        if name not in self.known:
            done = self.supervise(self.launch(document, files))
            assert done.state == "finished", done.message
            self.known[name] = record_of(done)
        return self.known[name]

    def hold(self, run: Run, *, at: int) -> None:
        """From the iteration on the run's trainer waits, until `release`."""
        held.hold(path_of(run_uri(run.pk)), at=at)

    def release(self, run: Run) -> None:
        held.release(path_of(run_uri(run.pk)))

    def kill(self, run: Run, *, at: int) -> Act:
        """SIGKILL to the trainer's group, once the run has reached the iteration, at which it waits."""
        self.hold(run, at=at)
        killed: list[int] = []

        def act() -> None:
            found = Run.objects.get(pk=run.pk)
            pid = found.attempts.get(number=found.attempt_number).pid
            if found.iteration >= at and pid and not killed:
                killed.append(pid)
                os.killpg(pid, signal.SIGKILL)
                self.release(run)

        return act


@pytest.fixture
def lab(cast: Cast, settings: Any) -> Iterator[Lab]:
    lab = Lab(cast, settings)
    yield lab
    left = [pid for pid in lab.pids if Path(f"/proc/{pid}").exists()]
    assert not left, f"trainers outlived their test: {left}"
