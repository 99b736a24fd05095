"""A bucket end to end: the supervisor and the trainer themselves, and a second host that has nothing but the bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as configured
from django.db import OperationalError

from tests.conftest import Cast
from tests.installed import held
from tests.installed.documents import ARCHITECTURE, rl
from tests.installed.record import record_of
from tests.webapp.bucket import Bucket
from tests.webapp.datasets.making import make_version
from tests.webapp.launch.test_supervisor import supervise
from tests.webapp.making import claimed
from webapp.checkpoints.manifests import verify
from webapp.launch.services import launch_run, resume_run
from webapp.runs.models import Run
from webapp.runs.services import request_stop
from webapp.runs.storage import files_root, is_local, path_of, run_uri, walk

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def supervised(run: Run, act: Any = lambda: None) -> Run:
    return supervise(claimed(Run.objects.get(pk=run.pk)), Path(configured.FILES_DIR), act, pause=0.05)


def elsewhere(settings: Any, tmp_path: Path, name: str) -> None:
    """From here on this is another host, with an empty folder."""
    settings.FILES_DIR = tmp_path / name
    assert not files_root().exists()


def test_a_second_host_goes_on_from_the_bucket_alone_to_the_same_weights(
    cast: Cast, bucket: Bucket, settings: Any, tmp_path: Path
) -> None:
    assert not is_local()
    document = rl()
    settings.TRAINER_COMMAND = [*held.COMMAND]
    whole = supervised(launch_run(cast.project, cast["member"], document))
    assert (whole.state, whole.message) == ("finished", "The run reached its budget.")
    final = whole.checkpoints.get(final=True)
    assert (final.available, final.iteration) == (True, 18)
    verify(final.uri)

    elsewhere(settings, tmp_path, "first host")
    run = launch_run(cast.project, cast["member"], document, auto_resume=0)
    held.hold(path_of(run_uri(run.pk)), at=9)

    def stop() -> None:
        try:
            found = Run.objects.get(pk=run.pk)
            if found.iteration >= 9 and found.stop_requested_at is None and found.is_active:
                request_stop(run=found)
        except OperationalError:
            # In SQLite's memory a table that the thread of uploads writes is locked at once; the next look is soon.
            return

    stopped = supervised(run, stop)
    assert stopped.state == "stopped", stopped.message
    saved = stopped.checkpoints.filter(retired=False).order_by("-iteration").first()
    assert saved is not None
    assert saved.available
    assert 9 <= (saved.iteration or 0) < 18

    elsewhere(settings, tmp_path, "second host")
    resume_run(Run.objects.get(pk=run.pk), cast["member"])
    done = supervised(run)
    assert done.state == "finished", done.message
    # Not from the start. (Retention has taken the checkpoint itself since.)
    assert [mark.iteration for mark in done.events.filter(kind="mark", key="rewind")] == [saved.iteration]
    assert not path_of(f"runs/{run.pk}/attempts/1/events.jsonl").exists()
    assert record_of(done) == record_of(whole)
    assert done.checkpoints.get(final=True).weights_hash == final.weights_hash
    verify(done.checkpoints.get(final=True).uri)


def test_a_dataset_and_a_base_come_from_the_bucket(cast: Cast, bucket: Bucket, settings: Any, tmp_path: Path) -> None:
    version = make_version(cast.project)
    small = {"iterations": 2}
    base = {
        "kind": "sft",
        "policy": {"architecture": ARCHITECTURE | {"max_positions": 64}},
        "task": {"name": "dataset", "params": {"content_hash": version.content_hash}, "problems": 50},
        "evaluation": {"problems": 5, "samples": 2, "final_problems": 5, "final_samples": 2},
        "sampling": {"max_new_tokens": 4},
        "sft": {"rows": 20, "batch_size": 4, "log_every": 1},
        "budget": small,
    }
    first = supervised(launch_run(cast.project, cast["member"], base))
    assert first.state == "finished", first.message
    [kept] = first.checkpoints.filter(final=True)

    elsewhere(settings, tmp_path, "second host")
    again = supervised(launch_run(cast.project, cast["member"], base | {"policy": {"checkpoint": kept.policy_uri}}))
    assert again.state == "finished", again.message
    assert path_of(version.uri).is_file()
    assert path_of(f"{kept.policy_uri}/model.safetensors").is_file()
    assert not path_of(f"{kept.uri}/manifest.json").exists()
    assert list(walk(again.checkpoints.get(final=True).uri))
