"""Bringing checkpoints from a bucket to this host, every file compared with the manifest."""

import hashlib
from pathlib import Path

from webapp.checkpoints.manifests import MANIFEST, Damaged, Entry, read_manifest
from webapp.core.counts import counted
from webapp.runs.copies import changing, make_room, note
from webapp.runs.storage import StorageError, chunks, fetch, path_of, read, walk

POLICY_FOLDER = "policies/policy"


def stage(uri: str) -> Path:
    """The folder of a checkpoint, or of its policy alone, on this host, every file compared with the manifest.

    Files that are here already and as they should be are not fetched again; two who want one checkpoint fetch it once.
    The manifest is written last. Raises Damaged naming the file, FileNotFoundError, or StorageError.
    """
    home, inside = _home_of(uri)
    with changing(uri):
        entries = _entries(home)
        if entries is None:
            return _stage_unlisted(uri)
        wanted = [entry for entry in entries if not inside or entry.name.startswith(f"{inside}/")]
        if not wanted:
            raise FileNotFoundError(f"{uri} is not among the files of the checkpoint {home}")
        size = sum(entry.size for entry in wanted)
        make_room(size, besides=uri)
        for entry in wanted:
            _stage_file(home, entry)
        if not inside:
            path_of(f"{home}/{MANIFEST}").write_bytes(read(f"{home}/{MANIFEST}"))
        note(uri, size)
    return path_of(uri)


def _home_of(uri: str) -> tuple[str, str]:
    """The checkpoint that a URI lies in, and where in it."""
    suffix = f"/{POLICY_FOLDER}"
    return (uri.removesuffix(suffix), POLICY_FOLDER) if uri.endswith(suffix) else (uri, "")


def _entries(home: str) -> list[Entry] | None:
    try:
        return read_manifest(home)
    except FileNotFoundError:
        return None


def _stage_unlisted(uri: str) -> Path:
    """A folder from before manifests: everything below, by size."""
    found = list(walk(uri))
    if not found:
        raise FileNotFoundError(f"{uri} is not in the file storage")
    make_room(sum(file.size for file in found), besides=uri)
    for file in found:
        fetch(file.uri, size=file.size)
    note(uri, sum(file.size for file in found))
    return path_of(uri)


def _stage_file(home: str, entry: Entry) -> None:
    path = path_of(f"{home}/{entry.name}")
    if path.is_file() and _is(path, entry):
        return
    path.unlink(missing_ok=True)
    try:
        fetch(f"{home}/{entry.name}", sha256=entry.sha256, size=entry.size)
    except FileNotFoundError as error:
        raise Damaged(f"{home}: file {entry.name!r} is missing, expected {counted(entry.size, 'byte')}") from error
    except StorageError as error:
        if (fault := _fault(home, entry)) is not None:
            raise Damaged(fault) from error
        raise


def _fault(home: str, entry: Entry) -> str | None:
    """What is wrong with the stored file itself; None when it is as it should be, so that only its transfer failed."""
    digest, size = hashlib.sha256(), 0
    for data in chunks(f"{home}/{entry.name}"):
        digest.update(data)
        size += len(data)
    if size != entry.size:
        what = "was cut short" if size < entry.size else "has grown"
        return f"{home}: file {entry.name!r} {what}: found {counted(size, 'byte')}, expected {entry.size}"
    if digest.hexdigest() != entry.sha256:
        return f"{home}: file {entry.name!r} was changed: found sha256 {digest.hexdigest()}, expected {entry.sha256}"
    return None


def _is(path: Path, entry: Entry) -> bool:
    if path.stat().st_size != entry.size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == entry.sha256
