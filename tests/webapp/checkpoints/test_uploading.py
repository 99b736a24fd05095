"""Uploads in pieces: they go on where they broke, and only what was announced becomes a checkpoint."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from tests.conftest import Cast
from tests.webapp.models import weights
from webapp.checkpoints import uploading
from webapp.checkpoints.manifests import verify
from webapp.checkpoints.models import Upload
from webapp.checkpoints.uploading import append, complete, offsets, start
from webapp.runs.pieces import WrongOffset

FILES = {"config.json": b"{}", "model.safetensors": weights(b"data" * 50)}


def announced(**changes: Any) -> dict[str, dict[str, Any]]:
    files = {name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in FILES.items()}
    return files | changes


@pytest.fixture
def upload(cast: Cast, settings: Any, tmp_path: Path) -> Upload:
    settings.FILES_DIR = tmp_path
    return start(project=cast.project, user=cast["member"], name="Mine", files=announced())


def send_all(upload: Upload) -> None:
    for name, data in FILES.items():
        append(upload=upload, name=name, offset=0, data=[data])


def test_in_pieces_with_a_break_and_completed_once(upload: Upload) -> None:
    data = FILES["model.safetensors"]

    def breaks() -> Any:
        yield data[:100]
        raise OSError("the connection broke")

    with pytest.raises(OSError, match="the connection broke"):
        append(upload=upload, name="model.safetensors", offset=0, data=breaks())
    assert offsets(upload) == {"config.json": 0, "model.safetensors": 100}
    with pytest.raises(WrongOffset) as wrong:
        append(upload=upload, name="model.safetensors", offset=0, data=[data])
    assert wrong.value.offset == 100
    assert append(upload=upload, name="model.safetensors", offset=100, data=[data[100:]]) == len(data)
    with pytest.raises(ValidationError, match=r"config.json: 0 of 2 bytes have arrived"):
        complete(upload)
    append(upload=upload, name="config.json", offset=0, data=[b"{}"])
    made = complete(upload)
    verify(made.uri)
    assert (made.name, made.available, complete(upload)) == ("Mine", True, made)
    assert not uploading.folder_of(upload).exists()
    with pytest.raises(ValidationError, match="is complete"):
        append(upload=upload, name="config.json", offset=2, data=[b"x"])


def test_a_file_of_another_content_is_refused_and_begins_again(upload: Upload) -> None:
    send_all(upload)
    (uploading.folder_of(upload) / "config.json").write_bytes(b"[]")
    with pytest.raises(ValidationError, match=r"config.json: found sha256 \w{64}, expected \w{64}"):
        complete(upload)
    assert offsets(upload)["config.json"] == 0


def test_more_than_announced_and_what_was_not_announced_is_refused(upload: Upload) -> None:
    with pytest.raises(ValidationError, match="more bytes came than the 2 announced"):
        append(upload=upload, name="config.json", offset=0, data=[b"{}", b"x"])
    assert offsets(upload)["config.json"] == 2
    for name in ("other.json", "../config.json"):
        with pytest.raises(ValidationError, match="was not announced"):
            append(upload=upload, name=name, offset=0, data=[b"x"])


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"pytorch_model.bin": {"size": 1, "sha256": "0" * 64}}, "pickle"),
        ({"../x.json": {"size": 1, "sha256": "0" * 64}}, "bad_name"),
        ({"CONFIG.JSON": {"size": 1, "sha256": "0" * 64}}, "twice"),
        ({"x.json": {"size": -1, "sha256": "0" * 64}}, "bad_size"),
        ({"x.json": {"size": True, "sha256": "0" * 64}}, "bad_size"),
        ({"x.json": {"size": 1, "sha256": "zz"}}, "bad_hash"),
        ({"x.json": {"size": 10**15, "sha256": "0" * 64}}, "too_large"),
    ],
)
def test_announcements_that_are_refused(upload: Upload, changes: dict[str, Any], code: str) -> None:
    with pytest.raises(ValidationError) as refused:
        start(project=upload.project, user=None, name="x", files=announced(**changes))
    assert refused.value.code == code


def test_an_upload_that_nobody_touches_is_removed(upload: Upload) -> None:
    send_all(upload)
    assert uploading.remove_expired() == 0
    Upload.objects.update(touched_at=timezone.now() - timedelta(days=3))
    assert uploading.remove_expired() == 1
    assert not uploading.folder_of(upload).exists()
