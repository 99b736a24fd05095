"""The file storage, as a folder and as a bucket over HTTP: same answers, and what happens when the bucket misbehaves."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest
from django.core.checks import run_checks

from tests.webapp.bucket import Bucket
from webapp.runs import storage

URI = "runs/r1/attempts/1/größe and more/a file.bin"


@pytest.fixture(params=["folder", "bucket"])
def either(request: pytest.FixtureRequest, settings, tmp_path: Path) -> None:
    if request.param == "bucket":
        request.getfixturevalue("bucket")
    else:
        settings.FILES_DIR = tmp_path / "files"


def test_both_storages_give_the_same_answers(either: None, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"0123456789")
    storage.put(source, URI)
    storage.write("runs/r1/attempts/1/manifest.json", b"{}")
    storage.write("runs/r12/other", b"not below runs/r1")
    assert storage.stat(URI).size == 10
    assert storage.read(URI) == b"0123456789"
    assert b"".join(storage.chunks(URI, 3, 7)) == b"3456"
    assert b"".join(storage.chunks(URI, 8)) == b"89"
    assert b"".join(storage.chunks(URI, 4, 4)) == b""
    assert sorted((f.uri, f.size) for f in storage.walk("runs/r1")) == [
        (URI, 10),
        ("runs/r1/attempts/1/manifest.json", 2),
    ]
    assert storage.fetch(URI).read_bytes() == b"0123456789"
    assert storage.remove_tree("runs/r1") == 12
    assert list(storage.walk("runs/r1")) == []
    assert not storage.path_of("runs/r1").exists()
    assert storage.read("runs/r12/other") == b"not below runs/r1"
    storage.remove("runs/r12/other")
    storage.remove("runs/r12/other")
    for missing in (URI, "runs"):
        with pytest.raises(FileNotFoundError):
            storage.stat(missing)
    with pytest.raises(FileNotFoundError):
        storage.read(URI)


@pytest.mark.parametrize("uri", ["../outside", "/etc/passwd", "a/../../b", "a\\b", "", "a\0b"])
def test_a_uri_that_leaves_the_storage_is_refused(either: None, uri: str, tmp_path: Path) -> None:
    for act in (storage.stat, storage.chunks, storage.walk, storage.remove, storage.fetch, storage.remove_tree):
        with pytest.raises(storage.BadUri):
            act(uri)
    with pytest.raises(storage.BadUri):
        storage.write(uri, b"x")


def test_a_large_file_goes_up_in_parts_and_comes_back_the_same(bucket: Bucket, tmp_path: Path) -> None:
    source = tmp_path / "large"
    data = bytes(range(256)) * 4096 * 17
    source.write_bytes(data)
    storage.put(source, URI)
    parts = [line for line in bucket.faults.seen if "partNumber=" in line]
    assert len(parts) == 3  # 17 MB in parts of 8 MB
    assert hashlib.sha256(storage.fetch(URI).read_bytes()).hexdigest() == hashlib.sha256(data).hexdigest()


def test_a_connection_that_breaks_is_taken_up_where_it_broke(bucket: Bucket) -> None:
    data = bytes(range(256)) * 20_000
    storage.write(URI, data)
    bucket.faults.cut = [3_000_000, 500_000]
    assert storage.fetch(URI, sha256=hashlib.sha256(data).hexdigest()).read_bytes() == data
    assert bucket.faults.cut == []


def test_a_server_error_is_tried_again(bucket: Bucket) -> None:
    bucket.faults.refuse = 2
    storage.write(URI, b"in the end")
    assert storage.read(URI) == b"in the end"


def test_a_server_that_is_away_is_told_and_comes_back(bucket: Bucket) -> None:
    storage.write(URI, b"kept")
    bucket.stop()
    try:
        with pytest.raises(storage.StorageError, match=r"the bucket lab at http.* failed at runs/r1"):
            storage.read(URI)
    finally:
        bucket.start()
    assert storage.read(URI) == b"kept"


def test_what_was_changed_in_the_storage_is_refused_by_its_hash(bucket: Bucket) -> None:
    storage.write(URI, b"tampered")
    expected = hashlib.sha256(b"original").hexdigest()
    with pytest.raises(storage.StorageError, match=f"expected {expected}"):
        storage.fetch(URI, sha256=expected)
    with pytest.raises(storage.StorageError, match="has 8 bytes in the storage, expected 9"):
        storage.fetch(URI, size=9)
    assert not storage.path_of(URI).exists()
    assert list(storage.path_of(URI).parent.iterdir()) == []


def test_two_who_want_the_same_file_fetch_it_once(bucket: Bucket) -> None:
    storage.write(URI, b"once" * 100_000)
    bucket.faults.seen = []
    threads = [threading.Thread(target=storage.fetch, args=(URI,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(line.startswith("GET") for line in bucket.faults.seen) == 1


def test_the_start_up_check_writes_lists_reads_and_removes(either: None) -> None:
    assert run_checks(tags=["storage"], include_deployment_checks=True) == []
    assert list(storage.walk("probe")) == []


def test_the_start_up_check_names_the_bucket_that_is_not_there(bucket: Bucket, settings) -> None:
    options = {**bucket.options, "bucket_name": "elsewhere"}
    settings.STORAGES = {**settings.STORAGES, "files": {**settings.STORAGES["files"], "OPTIONS": options}}
    (found,) = run_checks(tags=["storage"], include_deployment_checks=True)
    assert found.id == "unsqueeze.E006"
    assert "cannot be written" in found.msg
    assert "the bucket elsewhere" in found.msg
    assert "UNSQUEEZE_STORAGE_URL" in str(found.hint)
