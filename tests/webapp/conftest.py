"""Fixtures of tests that need a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.webapp.bucket import Bucket, running_bucket


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Bucket]:
    with running_bucket() as found:
        yield found


@pytest.fixture
def bucket(s3_server: Bucket, settings: Any, tmp_path: Path) -> Bucket:
    """The file storage is an empty bucket over HTTP, and this host's copies are in `tmp_path`/copy."""
    options = {**s3_server.options, "location": f"files of {tmp_path.name}"}
    settings.FILES_DIR = tmp_path / "copy"
    settings.STORAGES = {
        **settings.STORAGES,
        "files": {"BACKEND": "webapp.core.bucket_storage.BucketStorage", "OPTIONS": options},
    }
    s3_server.faults.refuse, s3_server.faults.cut, s3_server.faults.seen = 0, [], []
    s3_server.options = options
    return s3_server
