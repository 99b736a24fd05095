"""A worker's files come into the bucket, whatever happens meanwhile, and another host goes on from there."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.conftest import Cast
from tests.installed.processes import wait_until
from tests.webapp.bucket import Bucket
from tests.webapp.making import claimed, make_run, send
from trainer.contract import events as ev
from webapp.checkpoints.manifests import Damaged
from webapp.checkpoints.models import Checkpoint
from webapp.checkpoints.staging import stage
from webapp.launch import attempt_files, inputs
from webapp.launch.attempt_files import sweep, tell_stored, upload_attempt
from webapp.runs import storage
from webapp.runs.copies import in_use, make_room
from webapp.runs.models import Run
from webapp.runs.services import Claim
from webapp.teams.secret_services import set_secret


@pytest.fixture
def run(cast: Cast, bucket: Bucket) -> Run:
    return make_run(cast.project)


def save(run: Run, iteration: int, *, weights: bytes = b"weights") -> str:
    """A checkpoint as the trainer leaves it; its URI."""
    uri = f"runs/{run.pk}/attempts/1/checkpoints/it-{iteration:08d}"
    folder = storage.path_of(uri)
    policy = folder / "policies/policy"
    policy.mkdir(parents=True)
    (policy / "model.safetensors").write_bytes(weights)
    (folder / "optimizer.policy.safetensors").write_bytes(b"moments")
    files = {
        path.relative_to(folder).as_posix(): {
            "size": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in folder.rglob("*")
        if path.is_file()
    }
    (folder / "manifest.json").write_text(json.dumps({"files": files}))
    (folder.parents[1] / "events.jsonl").write_text("{}\n")
    return uri


def tell(held: Claim, iteration: int) -> Checkpoint:
    uri = f"attempts/1/checkpoints/it-{iteration:08d}"
    event = ev.Checkpoint(axes=ev.Axes(iteration=iteration), uri=uri, weights_hash=f"h{iteration}", size_bytes=10)
    send(held, [event])
    return Checkpoint.objects.get(run_id=held.run_id, iteration=iteration)


def stored(folder: str) -> set[str]:
    return {file.uri.removeprefix(f"{folder}/") for file in storage.walk(folder)}


def elsewhere(settings: Any, tmp_path: Path) -> None:
    """From here on this is another host: nothing is here."""
    settings.FILES_DIR = tmp_path / "another host"


def test_a_checkpoint_is_available_once_its_manifest_is_stored_which_comes_last(run: Run, bucket: Bucket) -> None:
    uri, held = save(run, 10), claimed(run)
    row = tell(held, 10)
    assert (row.available, row.stored_on) == (False, run.attempts.get().worker)
    bucket.faults.seen = []
    found = upload_attempt(run.pk, 1, over=False)
    puts = [line.rsplit("/", 1)[1].partition("?")[0] for line in bucket.faults.seen if line.startswith("PUT")]
    assert puts.index("manifest.json") > max(
        puts.index("model.safetensors"), puts.index("optimizer.policy.safetensors")
    )
    assert found.checkpoints == [uri]
    tell_stored(found)
    row.refresh_from_db()
    assert (row.available, row.stored_on) == (True, "")


def test_an_incomplete_checkpoint_and_drafts_are_not_stored(run: Run) -> None:
    save(run, 10)
    attempt = storage.path_of(f"runs/{run.pk}/attempts/1")
    (attempt / "checkpoints/it-00000010/manifest.json").unlink()
    (attempt / "checkpoints/.it-00000020.partial").mkdir()
    (attempt / "checkpoints/.it-00000020.partial/state.json").write_text("{}")
    (attempt / "rollouts").mkdir()
    (attempt / "rollouts/part-00000001.parquet").write_bytes(b"PAR1")
    (attempt / "rollouts/part-00000002.partial").write_bytes(b"PA")
    upload_attempt(run.pk, 1, over=True)
    assert stored(f"runs/{run.pk}/attempts/1") == {"events.jsonl", "rollouts/part-00000001.parquet"}


def test_what_is_still_to_be_starred_out_waits_for_the_end(run: Run) -> None:
    uri = save(run, 5)
    upload_attempt(run.pk, 1, over=False, growing=False)
    assert stored(uri)
    assert "events.jsonl" not in stored(f"runs/{run.pk}/attempts/1")
    upload_attempt(run.pk, 1, over=True, growing=False)
    assert "events.jsonl" in stored(f"runs/{run.pk}/attempts/1")


def test_a_storage_that_goes_away_in_the_middle_is_taken_up_where_it_broke(run: Run, bucket: Bucket) -> None:
    uri = save(run, 10)
    bucket.faults.refuse = 0
    bucket.stop()
    try:
        found = upload_attempt(run.pk, 1, over=True)
    finally:
        bucket.start()
    assert found.checkpoints == []
    assert "the bucket lab" in found.error
    assert f"{uri}/manifest.json".removeprefix(f"runs/{run.pk}/attempts/1/") in found.left
    bucket.faults.seen = []
    found = upload_attempt(run.pk, 1, over=True)
    assert (found.left, found.checkpoints) == ([], [uri])
    # A third look stores nothing again.
    bucket.faults.seen = []
    assert upload_attempt(run.pk, 1, over=True).stored == []
    assert [line for line in bucket.faults.seen if line.startswith("PUT")] == []


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_uploads_go_on_when_the_database_ends_their_connection(
    cast: Cast, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    if connection.vendor != "postgresql":
        pytest.fail("this test needs UNSQUEEZE_DATABASE_URL to be a PostgreSQL database")
    monkeypatch.setattr(attempt_files, "ROUND_EVERY", 0.05)
    run = make_run(cast.project)
    held = claimed(run)
    save(run, 10)
    first = tell(held, 10)
    uploads = attempt_files.Uploads(run.pk, 1, growing=True)
    wait_until(lambda: Checkpoint.objects.get(pk=first.pk).available, seconds=30)
    with connection.cursor() as cursor:
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        cursor.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
        assert cursor.rowcount == 1
    save(run, 20)
    second = tell(held, 20)
    uploads.finish()
    uploads.thread.join(30)
    assert uploads.done
    assert Checkpoint.objects.get(pk=second.pk).available


def test_what_a_killed_worker_left_is_stored_by_the_next_one(run: Run, bucket: Bucket) -> None:
    save(run, 10)
    row = tell(claimed(run), 10)
    assert sweep() == 0
    row.refresh_from_db()
    assert row.available
    assert "checkpoints/it-00000010/manifest.json" in stored(f"runs/{run.pk}/attempts/1")


def test_what_a_killed_worker_left_is_starred_out_before_it_leaves_the_host(cast: Cast, bucket: Bucket) -> None:
    value = "a value of the team"
    set_secret(team=cast.team, name="HF_TOKEN", value=value, user=None)
    run = make_run(cast.project, config={"kind": "rl", "secrets": ["HF_TOKEN"]})
    save(run, 10)
    attempt = f"runs/{run.pk}/attempts/1"
    text = f"from C: {value}\n"
    storage.path_of(f"{attempt}/log.txt").write_text(text)
    storage.path_of(f"{attempt}/events.jsonl").write_text(text)
    assert sweep() == 0
    for name in ("log.txt", "events.jsonl"):
        assert storage.read(f"{attempt}/{name}").decode() == text.replace(value, "*" * len(value))
    assert value not in storage.path_of(f"{attempt}/log.txt").read_text()


def test_what_no_row_can_say_the_secrets_of_stays_on_its_host(run: Run, bucket: Bucket) -> None:
    attempt = f"runs/{run.pk}/attempts/1"
    save(run, 10)
    run.delete()
    assert sweep() == 0
    assert not stored(attempt)
    assert [line for line in bucket.faults.seen if line.startswith("PUT")] == []


def test_another_host_goes_on_from_the_storage_alone(run: Run, settings: Any, tmp_path: Path) -> None:
    uri = save(run, 10)
    held = claimed(run)
    tell(held, 10)
    sweep()
    elsewhere(settings, tmp_path)
    ready = inputs.prepare(run, inputs.Inputs(False, "", (uri,)))
    assert ready.arguments == ["--checkpoint", "attempts/1/checkpoints/it-00000010"]
    folder = storage.path_of(uri)
    assert (folder / "policies/policy/model.safetensors").read_bytes() == b"weights"
    assert (folder / "manifest.json").is_file()
    # What was brought here was not written here: no sweep stores it again.
    assert sweep() == 0


def test_a_policy_is_staged_without_the_optimizer(run: Run, settings: Any, tmp_path: Path) -> None:
    uri = save(run, 10)
    sweep()
    elsewhere(settings, tmp_path)
    folder = stage(f"{uri}/policies/policy")
    assert [path.name for path in folder.iterdir()] == ["model.safetensors"]
    assert not storage.path_of(f"{uri}/optimizer.policy.safetensors").exists()


def test_a_copy_that_was_damaged_here_is_brought_again(run: Run, settings: Any, tmp_path: Path) -> None:
    uri = save(run, 10)
    sweep()
    elsewhere(settings, tmp_path)
    weights = stage(uri) / "policies/policy/model.safetensors"
    weights.write_bytes(b"weightz")
    stage(uri)
    assert weights.read_bytes() == b"weights"


def test_one_that_is_damaged_in_the_storage_is_refused_and_the_older_one_taken(
    run: Run, settings: Any, tmp_path: Path
) -> None:
    older, newer = save(run, 10), save(run, 20)
    held = claimed(run)
    tell(held, 10)
    sweep()
    elsewhere(settings, tmp_path)
    storage.write(f"{newer}/policies/policy/model.safetensors", b"tampered")
    with pytest.raises(Damaged, match=r"file 'policies/policy/model.safetensors' has grown: found 8 bytes, expected 7"):
        stage(newer)
    storage.write(f"{newer}/policies/policy/model.safetensors", b"weightz")
    with pytest.raises(Damaged, match=r"was changed: found sha256 \w{64}, expected \w{64}"):
        stage(newer)
    ready = inputs.prepare(run, inputs.Inputs(False, "", (newer, older)))
    assert ready.arguments == ["--checkpoint", "attempts/1/checkpoints/it-00000010"]
    assert list(ready.refused) == [newer]
    inputs.tell_refused(held, {older: "for the test"})
    assert Checkpoint.objects.get(uri=older).damage == "for the test"
    assert run.events.filter(kind="mark", key="alert").count() == 1
    with pytest.raises(inputs.NothingWhole):
        inputs.prepare(run, inputs.Inputs(False, "", (newer,)))


def test_the_copies_used_longest_ago_go_first_and_those_in_use_stay(run: Run, settings: Any, tmp_path: Path) -> None:
    uris = [save(run, iteration, weights=b"w" * 1000) for iteration in (10, 20, 30)]
    sweep()
    elsewhere(settings, tmp_path)
    settings.CACHE_BYTES = 3 * 1007
    for uri in uris:
        stage(uri)
    with in_use(uris[0]):
        assert make_room(1007) == [uris[1]]
    assert not storage.path_of(uris[1]).exists()
    assert storage.path_of(uris[0]).exists()
    settings.CACHE_BYTES = 1007
    assert make_room(0, besides=uris[2]) == [uris[0]]
