"""A trainer that is killed without warning costs the time since its last checkpoint, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.failures.conftest import Lab
from tests.installed.documents import SPS, rl, sft
from tests.installed.record import record_of
from webapp.runs.models import EventRow, Run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("document", [rl(methods=SPS), sft()], ids=["sps", "sft"])
def test_a_killed_run_resumes_to_what_it_would_have_been(lab: Lab, document: dict[str, Any], tmp_path: Path) -> None:
    expected = lab.undisturbed(document, tmp_path / "whole")
    run = lab.launch(document, tmp_path / "killed")
    killed = lab.supervise(run, lab.kill(run, at=9))
    assert (killed.state, killed.can_resume) == ("failed", True), killed.message
    assert "ended by SIGKILL" in killed.message
    assert killed.attempts.get().exit_code == -9
    assert killed.iteration == 9
    done = lab.resume(killed)
    assert done.state == "finished", done.message
    found = record_of(done)
    for part in expected:
        assert found[part] == expected[part], part


def test_a_run_that_is_killed_again_and_again_arrives(lab: Lab, tmp_path: Path) -> None:
    expected = lab.undisturbed(rl(), tmp_path / "whole")
    run = lab.launch(rl(), tmp_path / "killed")
    # Before its first checkpoint, so that it starts again; and twice after one.
    now = lab.supervise(run, lab.kill(run, at=2))
    for at in (6, 10):
        assert now.state == "failed", now.message
        now = lab.resume(now, lab.kill(Run.objects.get(pk=run.pk), at=at))
    done = lab.resume(now)
    assert (done.state, done.attempt_number) == ("finished", 4), done.message
    rewinds = EventRow.objects.filter(run=done, key="rewind").order_by("attempt")
    # Before iteration 0 is told as 0.
    assert [mark.iteration for mark in rewinds] == [0, 4, 8]
    assert record_of(done) == expected
