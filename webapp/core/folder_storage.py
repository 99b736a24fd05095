"""The file storage as a folder: on this host, or one that all hosts share."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.core.files.storage import FileSystemStorage

from webapp.core.file_storages import CHUNK, DRAFT, Stored


class FolderStorage(FileSystemStorage):
    """Files below UNSQUEEZE_FILES (the setting is read at every use)."""

    local = True

    @property
    def base_location(self) -> str:  # type: ignore[override]
        return str(settings.FILES_DIR)

    @property
    def location(self) -> str:  # type: ignore[override]
        return str(Path(settings.FILES_DIR).resolve())

    def describe(self) -> str:
        """For people: where the files are."""
        return f"the folder {self.location} (UNSQUEEZE_FILES)"

    def stat(self, uri: str) -> Stored:
        path = Path(self.path(uri))
        found = path.stat()
        if not path.is_file():
            raise FileNotFoundError(f"{uri} is a folder")
        return Stored(uri, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))

    def chunks(self, uri: str, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from `begin` up to, not including, `end`."""
        with open(self.path(uri), "rb") as file:
            file.seek(begin)
            left = None if end is None else end - begin
            while left is None or left > 0:
                data = file.read(CHUNK if left is None else min(CHUNK, left))
                if not data:
                    return
                left = None if left is None else left - len(data)
                yield data

    def put(self, path: Path, uri: str) -> None:
        """Copies a file into the storage; a reader sees the old one or the whole new one."""
        target = Path(self.path(uri))
        if target.exists() and path.exists() and target.samefile(path):
            return
        with _draft_of(target) as draft:
            shutil.copyfile(path, draft)

    def write(self, uri: str, data: bytes) -> None:
        """A small file from memory, whole or not at all."""
        with _draft_of(Path(self.path(uri))) as draft:
            draft.write_bytes(data)

    def walk(self, folder: str) -> Iterator[Stored]:
        """Every file below, in no order; links are not followed."""
        root = Path(self.location)
        for where, _folders, names in os.walk(root / folder):
            for name in names:
                path = Path(where, name)
                if DRAFT in name or path.is_symlink():
                    continue
                try:
                    found = path.stat()
                except FileNotFoundError:
                    continue
                modified = datetime.fromtimestamp(found.st_mtime, UTC)
                yield Stored(path.relative_to(root).as_posix(), found.st_size, modified)

    def remove(self, uri: str) -> None:
        """The file. One that is not there is no error."""
        Path(self.path(uri)).unlink(missing_ok=True)


@contextmanager
def _draft_of(target: Path) -> Iterator[Path]:
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f"{DRAFT}{secrets.token_hex(4)}.{target.name}"[:200])
    try:
        yield draft
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)
