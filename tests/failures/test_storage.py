"""Files that are missing, damaged or have no room: a clear message, nothing lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.failures.conftest import Lab
from tests.installed import servers
from tests.installed.documents import rl, sft
from tests.installed.record import record_of
from webapp.checkpoints.importing import import_checkpoint
from webapp.runs.models import Run
from webapp.runs.storage import path_of, run_uri

pytestmark = pytest.mark.slow


def test_a_base_whose_folder_is_gone_is_named(lab: Lab, tmp_path: Path) -> None:
    made = lab.supervise(lab.launch(sft(budget={"iterations": 2}), tmp_path / "files"))
    assert made.state == "finished", made.message
    weights = path_of(made.checkpoints.get(final=True).policy_uri)
    base = import_checkpoint(project=made.project, folder=weights, name="base")
    shutil.rmtree(path_of(base.uri))
    run = lab.launch(rl(policy={"checkpoint": base.policy_uri}), tmp_path / "files")
    failed = lab.supervise(run)
    assert failed.state == "failed"
    assert "policy.checkpoint: found no model" in failed.message
    assert base.uri in failed.message
    # With its files back, the same run goes its way.
    import_checkpoint(project=made.project, folder=weights, name="base")
    done = lab.resume(failed)
    assert done.state == "finished", done.message


def test_a_damaged_checkpoint_is_refused_and_named(lab: Lab, tmp_path: Path) -> None:
    run = lab.launch(rl(), tmp_path / "files")
    killed = lab.supervise(run, lab.kill(run, at=9))
    newest = max((path_of(run_uri(run.pk)) / "attempts/1/checkpoints").glob("it-*"))
    weights = newest / "policies/policy/model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    failed = lab.resume(killed)
    assert failed.state == "failed"
    assert "file 'policies/policy/model.safetensors' was changed: found sha256" in failed.message
    assert newest.name in failed.message
    assert "is complete: resume with --checkpoint attempts/1/checkpoints/it-" in failed.message
    # The refused one is known now, so that resuming again goes on from the older one.
    done = lab.resume(failed)
    assert done.state == "finished", done.message


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes of its own."""
    try:
        with servers.small_disk(tmp_path / "disk", "2m") as folder:
            yield folder
    except servers.Missing as missing:
        if os.environ.get("CI") and os.geteuid() == 0:
            pytest.fail(f"CI must run this test: {missing}")
        pytest.skip(str(missing))


@pytest.mark.parametrize(
    ("left", "told"),
    # With no room at all, not even the last event can be written: the exit code tells.
    [(60_000, "No space left on device"), (0, "A file could not be read or written (disk full")],
    ids=["no room for a checkpoint", "no room at all"],
)
def test_a_full_disk_ends_the_run_clearly_and_costs_no_checkpoint(
    lab: Lab, small_disk: Path, tmp_path: Path, left: int, told: str
) -> None:
    document = rl(save_rollouts_every=0)
    expected = lab.undisturbed(document, tmp_path / "whole")
    run = lab.launch(document, small_disk)
    lab.hold(run, at=9)
    ballast = small_disk / "ballast"

    def fill_up() -> None:
        found = Run.objects.get(pk=run.pk)
        if not ballast.exists() and found.iteration >= 9 and found.checkpoints.exists():
            free = shutil.disk_usage(small_disk).free
            ballast.write_bytes(bytes(max(0, free - left)))
            lab.release(run)

    failed = lab.supervise(run, fill_up)
    assert failed.state == "failed", failed.message
    assert told in failed.message
    assert failed.attempts.get().exit_code == 3
    kept = list((path_of(run_uri(run.pk)) / "attempts/1/checkpoints").glob("it-*/manifest.json"))
    assert kept
    assert not list(small_disk.rglob("*.partial"))
    ballast.unlink()
    done = lab.resume(failed)
    assert done.state == "finished", done.message
    assert record_of(done) == expected
