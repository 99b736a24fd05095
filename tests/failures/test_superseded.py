"""An attempt that was given up while its trainer went on: what it wrote afterwards is not part of the run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.failures.conftest import Lab
from tests.installed.documents import rl
from tests.installed.record import record_of
from tests.webapp.making import claimed
from webapp.launch import ingest
from webapp.launch.tail import events_path
from webapp.runs.models import EventRow, Run
from webapp.runs.services import finish
from webapp.runs.states import RunState
from webapp.runs.storage import path_of, run_uri

pytestmark = pytest.mark.slow


def test_a_run_goes_on_from_what_is_stored_not_from_what_a_lost_attempt_saved_later(lab: Lab, tmp_path: Path) -> None:
    document = rl(checkpoints={"every": 4, "keep": 10})
    undisturbed = lab.supervise(lab.launch(document, tmp_path / "whole"))
    assert undisturbed.state == "finished", undisturbed.message
    expected, whole = record_of(undisturbed), path_of(run_uri(undisturbed.pk))
    run = lab.launch(document, tmp_path / "lost")
    # Its worker hung, its trainer did not: the file and the checkpoints go to the end, the database to iteration 9.
    shutil.copytree(whole, path_of(run_uri(run.pk)))
    shutil.rmtree(whole.parents[1] / "evaluations", ignore_errors=True)
    path = events_path(run.pk, 1)
    path.write_text(path.read_text().replace(whole.name, run.pk))
    data = path.read_bytes()
    held = claimed(run)
    cut = data.index(b'"iteration":10')
    ingest.store(held, ingest.parse(data[:cut], 0))
    finish(held, to=RunState.LOST, exit_code=None, reason="Silent for too long.")
    done = lab.resume(Run.objects.get(pk=run.pk))
    assert done.state == "finished", done.message
    assert [mark.iteration for mark in EventRow.objects.filter(run=done, key="rewind")] == [8]
    found = record_of(done)
    for part in expected:
        assert found[part] == expected[part], part
