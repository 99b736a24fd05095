"""Checkpoints over HTTP: whole as a tar, single files with ranges, from a folder and from a bucket."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.conftest import Cast
from tests.webapp.models import model_folder, weights
from webapp.checkpoints.importing import import_checkpoint
from webapp.checkpoints.models import Checkpoint
from webapp.runs.storage import StorageError, write

DATA = weights(bytes(range(256)) * 40)
ETAG = f'"{hashlib.sha256(DATA).hexdigest()}"'


@pytest.fixture(params=["folder", "bucket"])
def checkpoint(request: pytest.FixtureRequest, cast: Cast, settings: Any, tmp_path: Path) -> Checkpoint:
    if request.param == "bucket":
        request.getfixturevalue("bucket")
    else:
        settings.FILES_DIR = tmp_path / "files"
    folder = model_folder(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(DATA)
    return import_checkpoint(project=cast.project, folder=folder, name="Größe / one")


def body(response: Any) -> bytes:
    return b"".join(response.streaming_content) if response.streaming else bytes(response.content)


@pytest.fixture
def get(client_of, checkpoint: Checkpoint):  # type: ignore[no-untyped-def]
    client: Client = client_of("viewer")
    address = reverse("checkpoints:file", args=(*checkpoint.url_args, "model.safetensors"))
    return lambda **headers: client.get(address, headers=headers)


def test_a_tar_holds_every_file_and_its_length_is_known(client_of, checkpoint: Checkpoint) -> None:  # type: ignore[no-untyped-def]
    response = client_of("viewer").get(reverse("checkpoints:download", args=checkpoint.url_args))
    data = body(response)
    assert int(response.headers["Content-Length"]) == len(data)
    assert response.headers["Content-Disposition"] == 'attachment; filename="Gr-e-one.tar"'
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        names = tar.getnames()
        found = tar.extractfile("Gr-e-one/model.safetensors")
        assert found is not None
        assert found.read() == DATA
    assert names == ["Gr-e-one/config.json", "Gr-e-one/model.safetensors", "Gr-e-one/manifest.json"]


def test_a_whole_file(get) -> None:  # type: ignore[no-untyped-def]
    response = get()
    assert (response.status_code, body(response)) == (200, DATA)
    assert response.headers["ETag"] == ETAG
    assert response.headers["Content-Disposition"] == 'attachment; filename="model.safetensors"'


@pytest.mark.parametrize(
    ("asked", "begin", "end"),
    [
        ("bytes=0-9", 0, 10),
        ("bytes=100-", 100, len(DATA)),
        ("bytes=-5", len(DATA) - 5, len(DATA)),
        ("bytes=5-999999999", 5, len(DATA)),
    ],
)
def test_a_range(get, asked: str, begin: int, end: int) -> None:  # type: ignore[no-untyped-def]
    response = get(Range=asked)
    assert (response.status_code, body(response)) == (206, DATA[begin:end])
    assert response.headers["Content-Range"] == f"bytes {begin}-{end - 1}/{len(DATA)}"
    assert response.headers["Content-Length"] == str(end - begin)


@pytest.mark.parametrize("asked", [f"bytes={len(DATA)}-", "bytes=-0"])
def test_a_range_outside_the_file(get, asked: str) -> None:  # type: ignore[no-untyped-def]
    response = get(Range=asked)
    assert (response.status_code, response.headers["Content-Range"]) == (416, f"bytes */{len(DATA)}")


@pytest.mark.parametrize("asked", ["bytes=9-0", "bytes=0-1,4-5", "lines=0-1", "bytes=-", "bytes=a-b"])
def test_a_range_that_cannot_be_read_gives_the_whole_file(get, asked: str) -> None:  # type: ignore[no-untyped-def]
    assert get(Range=asked).status_code == 200


def test_a_broken_download_goes_on_only_with_the_same_content(get) -> None:  # type: ignore[no-untyped-def]
    assert get(**{"Range": "bytes=4-", "If-Range": ETAG}).status_code == 206
    assert get(**{"Range": "bytes=4-", "If-Range": '"other"'}).status_code == 200
    assert get(**{"If-None-Match": ETAG}).status_code == 304


def test_a_file_that_was_changed_breaks_off(get, checkpoint: Checkpoint) -> None:  # type: ignore[no-untyped-def]
    write(f"{checkpoint.uri}/model.safetensors", DATA[:-1] + b"x")
    with pytest.raises(StorageError, match="was changed"):
        body(get())


@pytest.mark.parametrize("name", ["manifest.json", "..%2F..%2Fsecret_key", "nothing"])
def test_only_files_of_the_manifest_are_sent(client_of, checkpoint: Checkpoint, name: str) -> None:  # type: ignore[no-untyped-def]
    address = reverse("checkpoints:detail", args=checkpoint.url_args) + f"files/{name}"
    assert client_of("viewer").get(address).status_code == 404


def test_the_page_shows_damage_after_verifying(client_of, checkpoint: Checkpoint) -> None:  # type: ignore[no-untyped-def]
    client, page = client_of("member"), reverse("checkpoints:detail", args=checkpoint.url_args)
    verify = reverse("checkpoints:verify", args=checkpoint.url_args)
    client.post(verify)
    checkpoint.refresh_from_db()
    assert (checkpoint.damage, checkpoint.verified_at is not None) == ("", True)
    write(f"{checkpoint.uri}/model.safetensors", b"short")
    client.post(verify)
    assert f"was cut short: found 5 bytes, expected {len(DATA)}" in client.get(page).content.decode()
