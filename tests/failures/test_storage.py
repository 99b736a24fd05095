"""Files that are missing, damaged or have no room: a clear message, nothing lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.failures.conftest import Lab, rl, sft
from tests.installed.record import record_of
from webapp.checkpoints.services import import_checkpoint
from webapp.runs.models import Run
from webapp.runs.storage import path_of, run_uri

pytestmark = pytest.mark.slow


def test_a_base_whose_folder_is_gone_is_named(lab: Lab, tmp_path: Path) -> None:
    made = lab.supervise(lab.launch(sft(budget={"iterations": 4}), tmp_path / "files"))
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
    assert "missing or differs from its manifest" in failed.message
    assert newest.name in failed.message
    shutil.rmtree(newest)
    done = lab.resume(failed)
    assert done.state == "finished", done.message


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "unsqueeze-test", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        if os.environ.get("CI"):
            pytest.fail(f"CI must run this test, but no small file system can be mounted: {mounted.stderr.strip()}")
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize(
    ("left", "told"),
    # With no room at all, not even the last event can be written: the exit code tells.
    [(60_000, "No space left on device"), (0, "A file could not be read or written (disk full")],
    ids=["no room for a checkpoint", "no room at all"],
)
def test_a_full_disk_ends_the_run_clearly_and_costs_no_checkpoint(
    lab: Lab, small_disk: Path, tmp_path: Path, left: int, told: str
) -> None:
    document = rl(save_rollouts_every=0, budget={"iterations": 30})
    expected = lab.undisturbed(document, tmp_path / "whole")
    run = lab.launch(document, small_disk)
    ballast = small_disk / "ballast"

    def fill_up() -> None:
        found = Run.objects.get(pk=run.pk)
        if not ballast.exists() and found.iteration >= 5 and found.checkpoints.exists():
            free = shutil.disk_usage(small_disk).free
            ballast.write_bytes(bytes(max(0, free - left)))

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
