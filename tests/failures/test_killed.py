"""A trainer that is killed without warning costs the time since its last checkpoint, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.failures.conftest import SPS, Lab, rl, sft
from tests.installed.record import record_of
from webapp.runs.models import Run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("document", [rl(methods=SPS), sft()], ids=["sps", "sft"])
def test_a_killed_run_resumes_to_what_it_would_have_been(lab: Lab, document: dict[str, Any], tmp_path: Path) -> None:
    expected = lab.undisturbed(document, tmp_path / "whole")
    run = lab.launch(document, tmp_path / "killed")
    killed = lab.supervise(run, lab.kill(run, at=9))
    assert (killed.state, killed.can_resume) == ("failed", True), killed.message
    assert "ended by SIGKILL" in killed.message
    assert killed.attempts.get().exit_code == -9
    assert 9 <= killed.iteration < document["budget"]["iterations"]
    done = lab.resume(killed)
    assert done.state == "finished", done.message
    found = record_of(done)
    for part in expected:
        assert found[part] == expected[part], part


def test_a_run_killed_before_its_first_checkpoint_starts_again(lab: Lab, tmp_path: Path) -> None:
    document = rl(checkpoints={"every": 0}, budget={"iterations": 12})
    expected = lab.undisturbed(document, tmp_path / "whole")
    run = lab.launch(document, tmp_path / "killed")
    killed = lab.supervise(run, lab.kill(run, at=2))
    assert killed.state == "failed"
    done = lab.resume(killed)
    assert done.state == "finished", done.message
    assert record_of(done) == expected


def test_a_run_that_is_killed_again_and_again_arrives(lab: Lab, tmp_path: Path) -> None:
    document = rl(budget={"iterations": 14})
    expected = lab.undisturbed(document, tmp_path / "whole")
    run = lab.launch(document, tmp_path / "killed")
    now = lab.supervise(run, lab.kill(run, at=1))
    for at in (6, 10):
        assert now.state == "failed", now.message
        now = lab.resume(now, lab.kill(Run.objects.get(pk=run.pk), at=at))
    done = lab.resume(now)
    assert (done.state, done.attempt_number) == ("finished", 4), done.message
    assert record_of(done) == expected
