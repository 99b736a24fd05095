"""What the storage of runs, checkpoints, rollouts and data can do, besides what every Django storage does.

Large files need parts of a file, whole trees, and putting a file that lies on this host without reading it into
memory. Everything that a storage raises is an OSError; what is not there is a FileNotFoundError.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

CHUNK = 1 << 20
DRAFT = ".draft."
"""In the name of every file that is still being written; no listing shows them."""


class StorageError(OSError):
    """The storage does not answer, or refuses; the text says what to look at."""


@dataclass(frozen=True)
class Stored:
    """One file in the storage; `uri` is relative to it, `size` in bytes."""

    uri: str
    size: int
    modified: datetime


class FileStore(Protocol):
    """What both storages can do. URIs are checked by the caller (`webapp.runs.storage.checked`)."""

    local: bool
    """Whether a file of the storage has a path on this host, so that nothing has to be copied."""

    def stat(self, uri: str) -> Stored: ...
    def chunks(self, uri: str, begin: int = 0, end: int | None = None) -> Iterator[bytes]: ...
    def put(self, path: Path, uri: str) -> None: ...
    def write(self, uri: str, data: bytes) -> None: ...
    def walk(self, folder: str) -> Iterator[Stored]: ...
    def remove(self, uri: str) -> None: ...
    def describe(self) -> str: ...
