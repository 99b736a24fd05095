"""Copies of stored files on this host, where the storage is a bucket: which there are, and keeping them within bounds.

What was brought here is noted in `.copies/` with its size; the note's time is when it was last used. Notes alone decide
what may be evicted, so that nothing is removed here that was written here and is not stored yet.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from django.conf import settings

from webapp.runs.storage import fetch, files_root, is_local, locked, path_of

log = logging.getLogger(__name__)

NOTES = ".copies"


def local_copy(uri: str) -> Path:
    """The path of a stored file that never changes, for reading here: the file itself, or a copy that is kept for the
    next reader. Raises OSError.
    """
    path = fetch(uri)
    if not is_local():
        note(uri, path.stat().st_size)
    return path


def in_use(uri: str) -> AbstractContextManager[bool]:
    """For as long as it is held, the copy is not evicted."""
    return locked(f"copy {uri}", shared=True)


def changing(uri: str) -> AbstractContextManager[bool]:
    """For as long as it is held, nobody else uses or changes the copy."""
    return locked(f"copy {uri}")


def note(uri: str, size: int) -> None:
    """A folder or file is here and in the storage, so that it may be evicted; now is when it was last used."""
    folder = files_root() / NOTES
    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(uri.encode()).hexdigest()[:32]
    (folder / name).write_text(json.dumps({"uri": uri, "size": size}))


def _notes() -> Iterator[tuple[float, Path, str, int]]:
    for path in (files_root() / NOTES).glob("*"):
        try:
            found = json.loads(path.read_text())
            yield path.stat().st_mtime, path, str(found["uri"]), int(found["size"])
        except (OSError, ValueError, KeyError):
            continue


def make_room(size: int, *, besides: str = "") -> list[str]:
    """Evicts the copies that were used longest ago until `size` more bytes fit into UNSQUEEZE_CACHE_GB; their URIs.

    Copies that are in use stay, as does `besides`. Where all are, the bound is exceeded rather than a run refused.
    """
    notes = sorted(_notes())
    total, evicted = sum(found[3] for found in notes), []
    for _used, path, uri, held in notes:
        if total + size <= settings.CACHE_BYTES:
            break
        if uri == besides:
            continue
        with locked(f"copy {uri}", wait=False) as free:
            if free:
                _remove(path_of(uri))
                path.unlink(missing_ok=True)
                total -= held
                evicted.append(uri)
    if (over := total + size - settings.CACHE_BYTES) > 0:
        log.warning("Copies of stored files exceed UNSQUEEZE_CACHE_GB by %s bytes: all are in use.", over)
    return evicted


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
