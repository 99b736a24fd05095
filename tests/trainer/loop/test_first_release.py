"""A run that the first release stopped goes on in this one, to the weights that the first release would have reached."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from trainer.contract import events as ev
from trainer.contract.exit_codes import ExitCode
from trainer.core.errors import CheckpointError
from trainer.loop.checkpoint import load_checkpoint
from trainer.loop.checkpoint_files import newest_checkpoint, read_manifest
from trainer.loop.run import Attempt, run_attempt
from trainer.methods import resolve
from trainer.testing.replay import events_of, story_of

FIRST = Path(__file__).parents[1] / "fixtures/first-release"
REACHED = "d658156bcfb80451823c5ad00c0d0c7d5de3d3471c6caec316e446a5bfd265b3"
"""Recorded with commit 5c7f2f6, together with the fixture; it depends on the machine's kind and torch's version."""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    shutil.copytree(FIRST, tmp_path / "run")
    return tmp_path / "run"


def test_an_old_run_resumes(old: Path) -> None:
    recorded = json.loads((old / "attempts/1/checkpoints/it-00000004/state.json").read_text())["versions"]
    document = json.loads((old / "config.json").read_text())
    attempt = Attempt(run=old, number=2, files=old, resume=True, stop=lambda: False)
    assert run_attempt(document, attempt) == ExitCode.FINISHED
    story = story_of(old)
    assert sorted(story.axes) == [0, 1, 2, 3, 4, 5, 6]
    assert {e.v for e in events_of(old)} == {2}
    ours = next(
        e.event for e in events_of(old) if isinstance(e.event, ev.State) and e.attempt == 2 and e.event.versions
    )
    if all(ours.versions.get(name) == value for name, value in recorded.items()):
        assert story.checkpoints[6] == REACHED


def test_the_set_of_an_old_evaluation_is_the_set_of_a_new_one(old: Path) -> None:
    attempt = Attempt(run=old, number=2, files=old, resume=True, stop=lambda: False)
    run_attempt(json.loads((old / "config.json").read_text()), attempt)
    found = [e for e in events_of(old) if isinstance(e.event, ev.Evaluation) and e.event.name == "validation"]
    assert {e.attempt for e in found} == {1, 2}
    assert len({e.event.set_id for e in found}) == 1


def test_a_checkpoint_of_a_later_release_is_refused_with_its_name(old: Path) -> None:
    folder = newest_checkpoint(old)
    assert folder is not None
    config = resolve(json.loads((old / "config.json").read_text()))
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"schema_version": 4, "release": "3.2"}))
    with pytest.raises(CheckpointError, match=r"version 4; .* reads versions up to 1. Use Unsqueeze 3\.2"):
        read_manifest(folder)
    with pytest.raises(CheckpointError, match="version 4"):
        load_checkpoint(folder, config)  # type: ignore[arg-type]
