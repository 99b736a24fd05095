"""A bucket for tests that need one, and what the tests' threads leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections

from tests.webapp.bucket import Bucket, running_bucket


@pytest.fixture(scope="session", autouse=True)
def _no_thread_keeps_its_connection(django_db_setup: None) -> Iterator[None]:
    """Asynchronous requests read the database in a thread of asgiref's; the test client leaves its connection open, and
    PostgreSQL then refuses to drop the test database."""
    yield
    asyncio.run(sync_to_async(connections.close_all)())


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
