"""Files through the API: ranges of downloads, uploads in pieces, pins, verification, removal, retention."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cast
from tests.webapp.api.calling import Caller, error
from tests.webapp.datasets.making import bare_version
from tests.webapp.making import document, make_run
from tests.webapp.models import model_folder, weights
from webapp.checkpoints.importing import import_checkpoint
from webapp.checkpoints.models import Checkpoint, RunInput
from webapp.checkpoints.uploading import start
from webapp.runs import storage

FILES = {"config.json": b'{"model_type": "llama"}', "model.safetensors": weights(b"data" * 50)}
OCTETS = {"Content-Type": "application/octet-stream"}


def body(response: Any) -> bytes:
    return b"".join(response.streaming_content) if response.streaming else response.content


@pytest.fixture
def caller(cast: Cast) -> Caller:
    return Caller(cast["owner"])


@pytest.fixture
def checkpoint(cast: Cast, settings: Any, tmp_path: Path) -> Checkpoint:
    settings.FILES_DIR = tmp_path / "files"
    return import_checkpoint(project=cast.project, folder=model_folder(tmp_path / "m", b"0123456789"), name="base")


@pytest.fixture
def url(caller: Caller, checkpoint: Checkpoint) -> str:
    files = caller.get(f"checkpoints/{checkpoint.pk}").json()["files"]
    return next(file["url"] for file in files if file["name"] == "model.safetensors")


@pytest.mark.parametrize(
    ("asked", "status", "begin", "end"),
    [
        ("bytes=0-3", 206, 0, 4),
        ("bytes=-10", 206, -10, None),
        ("bytes=5-", 206, 5, None),
        ("bytes=5-99999", 206, 5, None),
        ("bytes=5-2", 200, 0, None),
        ("bytes=0-1,3-4", 200, 0, None),
        ("items=0-3", 200, 0, None),
    ],
)
def test_ranges(asked: str, status: int, begin: int, end: int | None, caller: Caller, url: str) -> None:
    whole = weights(b"0123456789")
    response = caller.get(url, Range=asked)
    part = whole[begin:end]
    assert (response.status_code, body(response)) == (status, part)
    assert response["Content-Length"] == str(len(part))
    assert response["ETag"] == f'"{hashlib.sha256(whole).hexdigest()}"'
    if status == 206:
        first = begin % len(whole)
        assert response["Content-Range"] == f"bytes {first}-{first + len(part) - 1}/{len(whole)}"


def test_a_range_outside_the_file(caller: Caller, url: str) -> None:
    size = len(weights(b"0123456789"))
    response = caller.get(url, Range=f"bytes={size}-")
    assert (response.status_code, response["Content-Range"]) == (416, f"bytes */{size}")


def test_a_range_of_a_file_that_is_another_by_now_is_the_whole_file(caller: Caller, url: str) -> None:
    whole = weights(b"0123456789")
    etag = caller.get(url)["ETag"]
    same = caller.get(url, **{"Range": "bytes=0-3", "If-Range": etag})
    assert (same.status_code, body(same)) == (206, whole[:4])
    other = caller.get(url, **{"Range": "bytes=0-3", "If-Range": '"other"'})
    assert (other.status_code, body(other)) == (200, whole)
    assert caller.get(url, **{"If-None-Match": etag}).status_code == 304


def test_a_file_that_is_gone_and_one_that_no_manifest_names(caller: Caller, url: str, checkpoint: Checkpoint) -> None:
    assert error(caller.get(url.replace("model.safetensors", "other"))) == (404, "not_found")
    storage.remove(f"{checkpoint.uri}/model.safetensors")
    assert error(caller.get(url)) == (404, "file_missing")


def test_everything_as_one_tar(caller: Caller, checkpoint: Checkpoint) -> None:
    response = caller.get(f"checkpoints/{checkpoint.pk}/all.tar")
    data = body(response)
    assert response["Content-Length"] == str(len(data))
    with tarfile.open(fileobj=io.BytesIO(data)) as packed:
        names = packed.getnames()
    assert names == ["base/config.json", "base/model.safetensors", "base/manifest.json"]


def test_ones_own_open_uploads_are_listed(cast: Cast, caller: Caller) -> None:
    files = {"config.json": {"size": 2}, "model.safetensors": {"size": 3}}
    start(project=cast.project, user=cast["member"], name="theirs", files=files)
    mine = start(project=cast.project, user=cast["owner"], name="mine", files=files)
    [row] = caller.get("uploads").json()["uploads"]
    assert (row["id"], row["name"], row["state"]) == (mine.pk, "mine", "open")
    assert caller.get(row["url"]).json() == row


# Import by path


def test_a_model_in_an_offered_folder_is_imported_once(caller: Caller, settings: Any, tmp_path: Path) -> None:
    settings.IMPORT_FOLDERS = [str(tmp_path / "models")]
    folder = model_folder(tmp_path / "models/lab/base", b"0123456789")
    made = caller.post("checkpoints", {"path": str(folder)})
    assert made.status_code == 201
    body = made.json()
    assert (body["name"], body["available"], body["run"]) == ("base", True, None)
    assert caller.post("checkpoints", {"path": str(folder), "name": "again"}).json()["id"] == body["id"]
    assert Checkpoint.objects.count() == 1


def test_what_lies_elsewhere_is_answered_like_what_is_not_there(caller: Caller, settings: Any, tmp_path: Path) -> None:
    models = tmp_path / "models"
    settings.IMPORT_FOLDERS = [str(models)]
    elsewhere = model_folder(tmp_path / "elsewhere", b"0123456789")
    (models / "linked").mkdir(parents=True)
    (models / "link").symlink_to(elsewhere)
    texts = set()
    for path in (elsewhere, models / "link", models / "../elsewhere", models / "nothing", "relative", "/etc/passwd"):
        answer = caller.post("checkpoints", {"path": str(path)})
        assert error(answer) == (400, "invalid"), path
        texts.add(answer.json()["error"]["message"])
    assert texts == {f"path: There is nothing in {models} with this path."}
    for name in ("config.json", "model.safetensors"):
        (models / "linked" / name).symlink_to(elsewhere / name)
    answer = caller.post("checkpoints", {"path": str(models / "linked")})
    assert "config.json, model.safetensors leads out of the folder" in answer.json()["error"]["message"]
    settings.IMPORT_FOLDERS = []
    answer = caller.post("checkpoints", {"path": str(elsewhere)})
    assert "UNSQUEEZE_IMPORT_FOLDERS" in answer.json()["error"]["message"]
    assert not Checkpoint.objects.exists()


def test_a_model_that_is_too_large_to_wait_for_names_the_command(
    caller: Caller, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.checkpoints.importing.LARGEST_VERIFIED", 10)
    settings.IMPORT_FOLDERS = [str(tmp_path)]
    folder = model_folder(tmp_path / "a model", b"0123456789")
    answer = caller.post("checkpoints", {"path": str(folder)})
    assert error(answer) == (409, "too_long_to_wait")
    assert answer.json()["error"]["message"].endswith(f"manage.py import_checkpoint lab/countdown '{folder}'")


# Orphans


def test_orphans_are_listed_and_removed_once_they_have_lain_still(
    cast: Cast, caller: Caller, checkpoint: Checkpoint
) -> None:
    old, new = (f"checkpoints/{cast.project.pk}/{name}" for name in ("old", "new"))
    foreign = f"checkpoints/{cast.other_project.pk}/old"
    for uri in (old, new, foreign):
        storage.write(f"{uri}/config.json", b"{}")
    for uri in (old, foreign):
        os.utime(storage.path_of(f"{uri}/config.json"), (1e9, 1e9))
    version = bare_version(cast.project)
    storage.remove(version.uri)
    storage.remove_tree(checkpoint.uri)
    found = caller.get("orphans").json()
    rows = {row["uri"]: row for row in found["orphans"]}
    assert {uri: row["due"] for uri, row in rows.items()} == {old: True, new: False}
    assert (rows[old]["files"], rows[old]["bytes"]) == (1, 2)
    assert "no manifest" in rows[old]["why"]
    assert {caller.get(row["url"]).json()["url"] for row in found["missing"]} == {
        row["url"] for row in found["missing"]
    }
    assert [row["uri"] for row in found["missing"]] == [checkpoint.uri, version.uri]
    done = caller.post("orphans/remove", {"uris": [old, new, foreign]}).json()
    assert done["removed"] == [old]
    assert {row["uri"]: row["why"] for row in done["kept"]} == {
        new: "it changed less than 24 h ago", foreign: "it is no orphan of this project",
    }  # fmt: skip
    assert storage.path_of(f"{foreign}/config.json").exists()
    assert not storage.path_of(old).exists()


def test_a_storage_that_is_away_is_no_empty_list(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(project: Any) -> Any:
        raise OSError("the bucket is away")

    monkeypatch.setattr("webapp.api.views.orphans.find_in", away)
    caller.client.raise_request_exception = False
    assert error(caller.get("orphans")) == (503, "unavailable")


def test_an_upload_that_breaks_goes_on_and_becomes_a_checkpoint(caller: Caller) -> None:
    files = {name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in FILES.items()}
    begun = caller.post("uploads", {"name": "Mine", "files": files}).json()
    url, data = begun["url"], FILES["model.safetensors"]
    assert {file["name"]: file["offset"] for file in begun["files"]} == {"config.json": 0, "model.safetensors": 0}
    piece = f"{url}/files/model.safetensors?offset="
    assert caller("put", f"{piece}0", data[:100], **OCTETS).json() == {"offset": 100}
    wrong = caller("put", f"{piece}0", data, **OCTETS)
    assert error(wrong) == (409, "wrong_offset")
    assert wrong.json()["error"]["details"] == {"offset": 100}
    assert error(caller("put", f"{url}/files/other?offset=0", b"x", **OCTETS)) == (404, "not_found")
    assert error(caller.post(f"{url}/complete")) == (409, "incomplete")
    assert caller("put", f"{piece}100", data[100:], **OCTETS).json() == {"offset": len(data)}
    caller("put", f"{url}/files/config.json?offset=0", FILES["config.json"], **OCTETS)
    made = caller.post(f"{url}/complete").json()
    assert (made["name"], made["available"], caller.post(f"{url}/complete").json()["id"]) == ("Mine", True, made["id"])
    assert caller.get(url).json()["checkpoint"] == made["id"]
    assert error(caller("put", f"{url}/files/config.json?offset=0", b"x", **OCTETS)) == (409, "not_open")
    files_there = caller.get(made["url"]).json()["files"]
    assert [file["name"] for file in files_there] == ["config.json", "model.safetensors"]


def test_a_file_that_was_announced_otherwise_begins_again(caller: Caller) -> None:
    files = {name: {"size": len(data), "sha256": "0" * 64} for name, data in FILES.items()}
    url = caller.post("uploads", {"name": "Mine", "files": files}).json()["url"]
    for name, data in FILES.items():
        caller("put", f"{url}/files/{name}?offset=0", data, **OCTETS)
    assert error(caller.post(f"{url}/complete")) == (409, "wrong_hash")
    assert caller.get(url).json()["files"][0]["offset"] == 0
    assert caller("delete", url).status_code == 204
    assert error(caller.get(url)) == (404, "not_found")


def test_an_upload_that_a_browser_began_has_no_hashes_yet(cast: Cast, caller: Caller) -> None:
    files = {name: {"size": len(data)} for name, data in FILES.items()}
    upload = start(project=cast.project, user=cast["owner"], name="m", files=files)
    assert [file["sha256"] for file in caller.get(f"uploads/{upload.pk}").json()["files"]] == [None, None]


def test_a_body_above_the_limit_is_refused_before_it_is_read(caller: Caller, settings: Any) -> None:
    settings.UPLOAD_LIMIT_BYTES = 1000
    files = {name: {"size": len(data), "sha256": "0" * 64} for name, data in FILES.items()}
    url = caller.post("uploads", {"name": "Mine", "files": files}).json()["url"]
    settings.UPLOAD_LIMIT_BYTES = 10
    assert error(caller("put", f"{url}/files/config.json?offset=0", b"x" * 11, **OCTETS)) == (413, "too_large")
    assert error(caller.post("uploads", {"name": "Mine", "files": files})) == (413, "too_large")


def test_damage_is_found_and_said(caller: Caller, checkpoint: Checkpoint) -> None:
    assert caller.post(f"checkpoints/{checkpoint.pk}/verify").json()["damage"] == ""
    storage.write(f"{checkpoint.uri}/config.json", b"{}")
    assert "config.json" in caller.post(f"checkpoints/{checkpoint.pk}/verify").json()["damage"]


def test_what_is_pinned_or_needed_stays(cast: Cast, caller: Caller, checkpoint: Checkpoint) -> None:
    path = f"checkpoints/{checkpoint.pk}"
    assert caller("patch", path, {"pinned": True}).json()["pinned"] is True
    assert error(caller("delete", path)) == (409, "in_use")
    caller("patch", path, {"pinned": False})
    used = RunInput.objects.create(run=make_run(cast.project), checkpoint=checkpoint)
    refused = caller("delete", path)
    assert error(refused) == (409, "in_use")
    assert "runs started from it: a run" in refused.json()["error"]["message"]
    used.delete()
    assert caller("delete", path).json()["available"] is False
    assert caller.get(path).json()["files"] == []
    assert error(caller("patch", path, {"pinned": True})) == (409, "no_files")
    assert error(caller.post(f"{path}/verify")) == (409, "no_files")


def saved(run: Any, iteration: int) -> Checkpoint:
    from django.utils import timezone

    from webapp.checkpoints.services import store_checkpoint

    uri = f"attempts/1/checkpoints/it-{iteration:08d}"
    axes = {"iteration": iteration}
    event = {"axes": axes, "uri": uri, "weights_hash": "h", "size_bytes": 10, "final": False, "metrics": {}}
    return store_checkpoint(run=run, attempt=1, event=event, time=timezone.now(), seq=iteration)


def test_retention_is_looked_at_before_it_is_applied(cast: Cast, caller: Caller) -> None:
    from webapp.launch.services import cancel_run

    run = make_run(cast.project)
    rows = [saved(run, iteration) for iteration in (1, 2, 3)]
    cancel_run(run, None)
    found = caller.get("retention?keep=1&keep_best=0").json()
    assert [(one["iteration"], one["goes"]) for one in found["verdicts"]] == [(3, False), (2, True), (1, True)]
    assert found["bytes"] == 20
    rule = {"keep": 2, "keep_best": 0, "best_metric": "eval/accuracy", "automatic": False}
    assert caller("put", "retention", rule).json()["rule"] == rule
    assert Checkpoint.objects.filter(removed_at=None).count() == 3
    assert caller.post("retention/apply").json() == {"removed": [rows[0].pk]}


def test_resuming_from_a_chosen_checkpoint(cast: Cast, caller: Caller, checkpoint: Checkpoint) -> None:
    from webapp.checkpoints.selectors import chosen_for
    from webapp.launch.services import cancel_run

    run = make_run(cast.project)
    early = saved(run, 1)
    saved(run, 2)
    cancel_run(run, None)
    path = f"runs/{run.pk}/resume"
    assert error(caller.post(path, {"checkpoint": 10**9})) == (404, "not_found")
    assert error(caller.post(path, {"checkpoint": checkpoint.pk})) == (400, "invalid")
    assert caller.post(path, {"checkpoint": early.pk}).json()["attempt"] == 2
    assert chosen_for(run, 2) == early


def test_a_copy_is_changed_by_key_and_starts_from_other_weights(caller: Caller, checkpoint: Checkpoint) -> None:
    first = caller.post("runs", {"config": document(), "tags": ["x"]}).json()
    changes = {"budget": {"iterations": 7}, "policy": {"architecture": None}}
    response = caller.post(f"runs/{first['id']}/copies", {"changes": changes, "checkpoint": checkpoint.pk, "name": "b"})
    assert response.status_code == 201, response.json()
    made = response.json()
    assert (made["name"], made["parent"], made["tags"]) == ("b", first["id"], ["x"])
    assert (made["config"]["budget"]["iterations"], made["config"]["seed"]) == (7, first["seed"])
    assert made["base_checkpoint"] == checkpoint.policy_uri
    wrong = caller.post(f"runs/{first['id']}/copies", {"changes": {"budget": {"iterations": -1}}})
    assert error(wrong) == (422, "invalid_config")
