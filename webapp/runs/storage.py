"""Where files are. Rows hold URIs relative to the file storage, never absolute paths.

With a folder as the storage (`is_local`), `path_of` is the file itself, and nothing is ever copied. With a bucket,
`path_of` is where this host keeps its working copy: trainers write there, and `fetch` puts files of the storage there.
"""

import fcntl
import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import cast

from django.conf import settings
from django.core.files.storage import storages

from webapp.core.counts import counted
from webapp.core.file_storages import DRAFT, FileStore, StorageError, Stored

__all__ = ["BadUri", "StorageError", "Stored"]

FETCH_TRIES = 4
LOCKS = ".locks"


class BadUri(ValueError):
    """A URI that leaves its folder; what it names is not touched."""


def files() -> FileStore:
    """The file storage: the setting UNSQUEEZE_STORAGE_URL, by default the folder UNSQUEEZE_FILES."""
    return cast(FileStore, storages["files"])


def is_local() -> bool:
    """Whether files of the storage have a path on this host."""
    return files().local


def files_root() -> Path:
    """The folder of this host that URIs are relative to: the storage itself, or its working copy (UNSQUEEZE_FILES)."""
    return Path(settings.FILES_DIR)


def run_uri(run_id: str, inside: str = "") -> str:
    """URI of a run's folder, or of what lies in it (`inside`, relative to that folder). Raises BadUri when it leaves
    it.
    """
    return checked(f"runs/{run_id}/{checked(inside)}" if inside else f"runs/{run_id}")


def attempt_uri(run_id: str, number: int, inside: str = "") -> str:
    """URI of an attempt's folder, or of a file in it."""
    return run_uri(run_id, f"attempts/{number}/{inside}" if inside else f"attempts/{number}")


def checked(uri: str) -> str:
    """The URI itself, in normal form. Raises BadUri when it is absolute, climbs, or holds what no storage takes."""
    path = PurePosixPath(uri)
    if not uri or path.is_absolute() or ".." in path.parts or "\\" in uri or "\0" in uri:
        raise BadUri(f"{uri!r} is not a path inside the file storage; expected a relative one without '..'")
    return str(path)


def path_of(uri: str) -> Path:
    """The path of a URI on this host. Raises BadUri when it leads out of the file storage, by a link for instance."""
    root = files_root().resolve()
    path = (root / checked(uri)).resolve()
    if not path.is_relative_to(root):
        raise BadUri(f"{uri!r} leads to {path}, which is outside the file storage {root}")
    return path


# Reading and writing. All raise OSError; FileNotFoundError for what is not there.


def stat(uri: str) -> Stored:
    """Size and time of one stored file."""
    path_of(uri)
    return files().stat(checked(uri))


def chunks(uri: str, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
    """The stored bytes from `begin` up to, not including, `end`, about a megabyte at a time."""
    path_of(uri)
    return files().chunks(checked(uri), begin, end)


def read(uri: str) -> bytes:
    """A small stored file."""
    return b"".join(chunks(uri))


def walk(folder: str) -> Iterator[Stored]:
    """Every stored file below a folder; none where there is no such folder."""
    return files().walk(checked(folder))


def put(path: Path, uri: str) -> None:
    """Stores a file that lies on this host; it appears whole or not at all."""
    path_of(uri)
    files().put(path, checked(uri))


def write(uri: str, data: bytes) -> None:
    """Stores a small file from memory; it appears whole or not at all."""
    path_of(uri)
    files().write(checked(uri), data)


def remove(uri: str) -> None:
    """Removes one stored file and this host's copy of it. One that is not there is no error."""
    path = path_of(uri)
    files().remove(checked(uri))
    path.unlink(missing_ok=True)


def remove_tree(folder: str) -> int:
    """Removes every stored file below a folder, and this host's copies; how many bytes the storage had there.

    What a checkpoint is known by, its manifest, goes first: one that is removed halfway is no checkpoint any more.
    """
    found = sorted(walk(folder), key=lambda file: not file.uri.endswith("/manifest.json"))
    for file in found:
        files().remove(file.uri)
    path = path_of(folder)
    if path.is_dir():
        shutil.rmtree(path)
    return sum(file.size for file in found)


# Working copies


def fetch(uri: str, *, sha256: str = "", size: int | None = None) -> Path:
    """The path of a stored file on this host, brought here first where the storage is no folder.

    A copy that has been fetched before is taken as it is when its size is that of the storage; so use this for files
    that never change. Two who want the same file fetch it once. What comes is compared with `sha256` and `size`, where
    they are given, and a connection that breaks is taken up where it broke. Raises StorageError.
    """
    path = path_of(uri)
    if is_local():
        return path
    with locked(uri):
        wanted = stat(uri).size if size is None else size
        if path.is_file() and path.stat().st_size == wanted:
            return path
        draft = path.with_name(f"{DRAFT}{path.name}")
        draft.parent.mkdir(parents=True, exist_ok=True)
        try:
            found = _download(uri, draft, wanted)
            if sha256 and found != sha256:
                raise StorageError(f"{uri} is not what was stored: found sha256 {found}, expected {sha256}")
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    return path


def _download(uri: str, draft: Path, wanted: int) -> str:
    """Writes the stored bytes to `draft`; their SHA-256."""
    if (found := stat(uri).size) != wanted:
        raise StorageError(f"{uri} has {counted(found, 'byte')} in the storage, expected {wanted}")
    digest, have = hashlib.sha256(), 0
    with draft.open("wb") as file:
        for trial in range(FETCH_TRIES):
            try:
                for data in files().chunks(checked(uri), have):
                    file.write(data)
                    digest.update(data)
                    have += len(data)
            except FileNotFoundError:
                raise
            except StorageError:
                if trial == FETCH_TRIES - 1:
                    raise
            if have >= wanted:
                break
    if have != wanted:
        raise StorageError(f"{uri} broke off after {counted(have, 'byte')}, expected {wanted}")
    return digest.hexdigest()


@contextmanager
def locked(name: str, *, shared: bool = False, wait: bool = True) -> Iterator[bool]:
    """A lock between the processes of this host. True inside while it is held; False when `wait` is off and another
    has it.
    """
    folder = files_root() / LOCKS
    folder.mkdir(parents=True, exist_ok=True)
    how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    with (folder / hashlib.sha256(name.encode()).hexdigest()[:32]).open("ab") as file:
        try:
            fcntl.flock(file, how)
        except BlockingIOError:
            yield False
            return
        yield True
