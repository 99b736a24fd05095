"""What a manifest says, and whether the stored files agree with it.

A manifest lists every file of a checkpoint with sha256 and size. It is written last: a folder without one is not
complete. The trainer writes the same format (`trainer/loop/checkpoint.py`).
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from webapp.core.counts import counted
from webapp.runs.storage import StorageError, chunks, read, stat

MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
LARGEST = 16 << 20


class Damaged(Exception):
    """A stored file is not what the manifest says; the text names it, and what was found and expected."""


@dataclass(frozen=True)
class Entry:
    """A file of a checkpoint: `name` relative to its folder, with slashes."""

    name: str
    size: int
    sha256: str


def read_manifest(uri: str) -> list[Entry]:
    """The files of the checkpoint at `uri`, by name. Raises FileNotFoundError without a manifest, Damaged for one that
    cannot be read.
    """
    where = f"{uri}/{MANIFEST}"
    if stat(where).size > LARGEST:
        raise Damaged(f"{where} is larger than any manifest")
    try:
        files: dict[str, dict[str, Any]] = json.loads(read(where))["files"]
        found = [Entry(name, int(entry["size"]), str(entry["sha256"])) for name, entry in files.items()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{where} cannot be read: {error}") from error
    for entry in found:
        if entry.name.startswith("/") or ".." in entry.name.split("/") or "\\" in entry.name:
            raise Damaged(f"{where} names {entry.name!r}, which is no file of the checkpoint")
    return sorted(found, key=lambda entry: entry.name)


def manifest_text(files: dict[str, dict[str, Any]], **more: Any) -> bytes:
    """A manifest for files (name → sha256 and size)."""
    document = {"schema_version": MANIFEST_VERSION, **more, "files": dict(sorted(files.items()))}
    return json.dumps(document, indent=1).encode()


def verify(uri: str, *, hashes: bool = True, progress: Callable[[int, int], object] = lambda done, all: None) -> None:
    """Compares every stored file with the manifest. `hashes` off compares sizes only, which is quick. Raises Damaged,
    FileNotFoundError without a manifest, or StorageError.

    `progress` is told the bytes read and the bytes in all.
    """
    entries = read_manifest(uri)
    total, done = sum(entry.size for entry in entries), 0
    for entry in entries:
        try:
            size = stat(f"{uri}/{entry.name}").size
        except FileNotFoundError as error:
            raise Damaged(f"file {entry.name!r} is missing, expected {counted(entry.size, 'byte')}") from error
        if size != entry.size:
            what = "was cut short" if size < entry.size else "has grown"
            raise Damaged(f"file {entry.name!r} {what}: found {counted(size, 'byte')}, expected {entry.size}")
        if not hashes:
            continue
        digest = hashlib.sha256()
        for data in chunks(f"{uri}/{entry.name}"):
            digest.update(data)
            done += len(data)
            progress(done, total)
        if digest.hexdigest() != entry.sha256:
            raise Damaged(
                f"file {entry.name!r} was changed: found sha256 {digest.hexdigest()}, expected {entry.sha256}"
            )


def checked_chunks(uri: str, entry: Entry) -> Iterator[bytes]:
    """A whole file's bytes; raises StorageError at the end when they are not what the manifest says, so that whoever
    reads them sees a broken transfer and not a good file.
    """
    digest, size = hashlib.sha256(), 0
    for data in chunks(f"{uri}/{entry.name}"):
        digest.update(data)
        size += len(data)
        if size == entry.size and digest.hexdigest() != entry.sha256:
            raise StorageError(f"{uri}/{entry.name} was changed: expected sha256 {entry.sha256}")
        yield data
    if size != entry.size:
        raise StorageError(f"{uri}/{entry.name} was cut short: found {counted(size, 'byte')}, expected {entry.size}")
