"""Writing a backup while everything goes on."""

import platform
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection, connections, transaction
from django.db.migrations.recorder import MigrationRecorder

from webapp.backup import rows
from webapp.backup.archive import FORMAT, MANIFEST, Writer, written
from webapp.core.counts import counted
from webapp.core.encryption import fingerprints
from webapp.core.file_storages import CHUNK, Stored
from webapp.runs.storage import files, is_local

SNAPSHOT = "snapshot"
# The events of a run are copied after everything else of it, so that they tell of every checkpoint that is there.
LAST = ("events.jsonl", "log.txt")
Say = Callable[[str], None]


def make_backup(path: Path, *, with_files: bool, with_keys: bool, say: Say) -> dict[str, Any]:
    """Writes the backup; its manifest. Rows are those of one moment; files are copied after them, so that every file
    that a row names is there unless it was removed meanwhile (`gone` in the manifest). Raises OSError.

    Files in a bucket are listed, not copied: a bucket has its own ways of being kept.
    """
    with written(path) as out, tempfile.TemporaryDirectory(dir=path.parent, prefix=".backup-") as scratch:
        started = datetime.now(UTC)
        with snapshot(Path(scratch)) as using:
            applied = sorted(MigrationRecorder(connections[using]).applied_migrations())
            counts = _add_rows(out, using, applied, Path(scratch), say)
        kept = _stored_files() if with_files and is_local() else []
        gone = _add_files(out, kept, say)
        if with_keys:
            out.add_json("keys.json", {"secret_key": settings.SECRET_KEY, "secrets_keys": settings.SECRETS_KEYS})
        manifest = {
            "format": FORMAT,
            "version": settings.VERSION,
            "made": started.isoformat(),
            "database": connection.vendor,
            "host": platform.node(),
            "migrations": [list(key) for key in applied],
            "rows": counts,
            "files": "included" if with_files and is_local() else "elsewhere" if with_files else "left out",
            "storage": files().describe(),
            "elsewhere": [] if is_local() else [[one.uri, one.size] for one in files().walk("")],
            "gone": gone,
            "keys": fingerprints(),
            "members": dict(out.members),
        }
        out.add_json(MANIFEST, manifest)
    return manifest


@contextmanager
def snapshot(scratch: Path) -> Iterator[str]:
    """The alias of a connection that sees the database as it is now, whatever is written meanwhile, and holds nobody up."""
    if connection.vendor == "sqlite":
        copy = scratch / "snapshot.sqlite3"
        connection.ensure_connection()
        with sqlite3.connect(copy) as target:
            connection.connection.backup(target)
        target.close()
        with added_connection(SNAPSHOT, {**settings.DATABASES["default"], "NAME": str(copy)}):
            yield SNAPSHOT
        copy.unlink()
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield "default"


@contextmanager
def added_connection(alias: str, database: dict[str, Any]) -> Iterator[None]:
    """One more database under an alias."""
    made = connections.configure_settings({"default": {}, alias: database})
    connections.settings[alias] = made[alias]
    try:
        yield
    finally:
        connections[alias].close()
        del connections[alias]
        del connections.settings[alias]


def _add_rows(out: Writer, using: str, applied: list[tuple[str, str]], scratch: Path, say: Say) -> dict[str, int]:
    """The tables as they are, which a version that was not migrated yet may know otherwise than this one."""
    counts = {}
    there = rows.models_at(connections[using], rows.leaves(connections[using], applied))
    for model in rows.tables(there):
        draft = scratch / "rows"
        counts[model._meta.label] = rows.dump(model, using, draft)
        out.add(rows.member(model), draft.stat().st_size, _chunks(draft))
        say(f"{model._meta.label}: {counted(counts[model._meta.label], 'row')}")
    return counts


def _stored_files() -> list[Stored]:
    return sorted(files().walk(""), key=lambda one: (one.uri.endswith(LAST), one.uri))


def _add_files(out: Writer, kept: list[Stored], say: Say) -> list[str]:
    total, done, gone, tenth = sum(one.size for one in kept), 0, [], 0
    for one in kept:
        try:
            size = files().stat(one.uri).size
            out.add(f"files/{one.uri}", size, files().chunks(one.uri))
        except FileNotFoundError:
            # Retention takes old checkpoints away at any time.
            gone.append(one.uri)
        done += one.size
        if total and done * 10 // total > tenth:
            tenth = done * 10 // total
            say(f"files: {tenth * 10} % of {total / 1e6:.1f} MB")
    return gone


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while data := file.read(CHUNK):
            yield data
