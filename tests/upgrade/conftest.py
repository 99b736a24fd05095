"""The archive of the first release, unpacked, and databases to put it into."""

from __future__ import annotations

import json
import os
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ARCHIVE = Path(__file__).with_name("release-0.1.tar.xz")
DATABASE = os.environ.get("TEST_DATABASE_URL", "postgres://postgres@127.0.0.1:5432/postgres")


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """The archive's folder: `data`, `postgres.sql`, `expected.json`."""
    with tarfile.open(ARCHIVE) as tar:
        tar.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.fixture
def expected(unpacked: Path) -> dict[str, Any]:
    """What the release said about its runs, by name."""
    found: dict[str, Any] = json.loads((unpacked / "expected.json").read_text())
    return found


@pytest.fixture
def empty_postgres() -> Iterator[str]:
    """The address of an empty database; it is dropped afterwards."""
    yield from _database()


@pytest.fixture
def postgres(unpacked: Path) -> Iterator[str]:
    """The address of a database that holds the release's rows."""
    import psycopg

    for address in _database():
        with psycopg.connect(address) as connection:
            connection.execute((unpacked / "postgres.sql").read_bytes())
        yield address


def _database() -> Iterator[str]:
    import psycopg

    name = f"unsqueeze_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(DATABASE, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
    try:
        yield DATABASE.rpartition("/")[0] + f"/{name}"
    finally:
        with psycopg.connect(DATABASE, autocommit=True) as server:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")
