"""The file of a backup: a tar whose last member, `manifest.json`, holds size and SHA-256 of every other one.

    rows/<app>.<Model>.jsonl.gz   a list of column names, then a list of values a row
    files/<uri>                   what the file storage holds
    keys.json                     only where it was asked for

It is written beside its place and renamed when it is whole.
"""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

FORMAT = 1
MANIFEST = "manifest.json"
_CHUNK = 1 << 20


class BadBackup(Exception):
    """The file is not a backup, was cut short or changed, or comes from a newer version; nothing was touched."""


class Writer:
    """Adds members to a backup that is being written."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self.members: dict[str, dict[str, Any]] = {}

    def add(self, name: str, size: int, chunks: Iterable[bytes]) -> None:
        """A member of exactly `size` bytes. Raises OSError when there are fewer; what follows is left out, because a file
        that is still written to only grows.
        """
        source = _Limited(chunks, size)
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = size, 0o600
        self._tar.addfile(entry, source)  # type: ignore[arg-type]
        self.members[name] = {"size": size, "sha256": source.digest.hexdigest()}

    def add_json(self, name: str, document: Any) -> None:
        """A JSON document as a member."""
        data = json.dumps(document, indent=1).encode()
        self.add(name, len(data), [data])


class _Limited:
    """A file of the first `size` bytes of the chunks, as tarfile reads it, with their digest."""

    def __init__(self, chunks: Iterable[bytes], size: int) -> None:
        self._chunks, self._left, self._held = iter(chunks), size, b""
        self.digest = hashlib.sha256()

    def read(self, count: int) -> bytes:
        count = min(count, self._left)
        while len(self._held) < count:
            more = next(self._chunks, None)
            if more is None:
                break
            self._held += more
        data, self._held = self._held[:count], self._held[count:]
        self._left -= len(data)
        self.digest.update(data)
        return data


@contextmanager
def written(path: Path) -> Iterator[Writer]:
    """A new backup at `path`; it appears there when everything is in it. The manifest's own fields are the caller's to
    set, by `Writer.add_json(MANIFEST, …)` at the end.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
                yield Writer(tar)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


class Reader:
    """An opened backup. Made by `opened`, which has verified it."""

    def __init__(self, tar: tarfile.TarFile, manifest: dict[str, Any]) -> None:
        self._tar, self.manifest = tar, manifest

    def names(self, prefix: str) -> list[str]:
        """The members below a prefix."""
        return [name for name in self.manifest["members"] if name.startswith(prefix)]

    def open(self, name: str) -> IO[bytes]:
        """One member's bytes."""
        file = self._tar.extractfile(name)
        assert file is not None
        return file

    def json(self, name: str) -> Any:
        """One member as JSON."""
        return json.load(self.open(name))


@contextmanager
def opened(path: Path) -> Iterator[Reader]:
    """A backup whose every member was read and compared with the manifest. Raises BadBackup."""
    try:
        with tarfile.open(path, mode="r:") as tar:
            yield Reader(tar, _verified(tar, path))
    except (tarfile.TarError, EOFError) as error:
        raise BadBackup(f"{path} is not a backup, or was cut short: {error}") from error
    except FileNotFoundError as error:
        raise BadBackup(f"{path} does not exist") from error


def _verified(tar: tarfile.TarFile, path: Path) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    manifest: dict[str, Any] | None = None
    for member in tar:
        file = tar.extractfile(member) if member.isreg() else None
        if file is None:
            raise BadBackup(f"{path}: {member.name!r} is not a plain file; a backup holds nothing else")
        if member.name == MANIFEST:
            manifest = json.load(io.TextIOWrapper(file, "utf-8"))
            continue
        digest = hashlib.sha256()
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
        found[member.name] = {"size": member.size, "sha256": digest.hexdigest()}
    if manifest is None:
        raise BadBackup(f"{path} has no manifest at its end: it is not a backup, or was cut short")
    if manifest["format"] > FORMAT:
        raise BadBackup(
            f"{path} has format {manifest['format']}, this version reads up to {FORMAT}; restore it with the version that "
            f"made it ({manifest['version']}) or a newer one"
        )
    wrong = sorted(name for name in {*found, *manifest["members"]} if found.get(name) != manifest["members"].get(name))
    if wrong:
        raise BadBackup(f"{path} was changed or cut short: {', '.join(wrong[:5])} differ from the manifest")
    return manifest
