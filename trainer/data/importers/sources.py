"""Opening what users bring: plain files, .gz, and ``save_to_disk`` folders of Hugging Face datasets, packed or not."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, cast

from trainer.contract.dataset import SplitName, split_named
from trainer.core.errors import DatasetError

Kind = Literal["jsonl", "json", "csv", "tsv", "parquet", "arrow"]
SUFFIXES: dict[str, Kind] = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet",
}  # fmt: skip
ACCEPTED = "JSONL, JSON, CSV, TSV and Parquet, each also .gz, or a save_to_disk folder packed as .tar, .tar.gz or .zip"
LARGEST_UNPACKED = 256 << 30
MOST_MEMBERS = 10_000
DAMAGED = (OSError, EOFError, zlib.error)
"""What reading a packed file raises where its bytes are cut or changed."""


@dataclass(frozen=True)
class Source:
    """One file of rows. ``name`` is what people call it; ``split`` is set where the folder says it."""

    path: Path
    name: str
    kind: Kind
    gzipped: bool = False
    split: SplitName | None = None

    def open(self) -> tuple[IO[bytes], IO[bytes]]:
        """(the bytes, unpacked; the file on disk, whose position tells how much is done). Close the second."""
        raw = self.path.open("rb")
        return cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if self.gzipped else raw, raw


def sources_of(path: Path, name: str, *, scratch: Path) -> list[Source]:
    """The files of rows in what lies at ``path`` and was called ``name``; archives are unpacked below ``scratch``.

    Raises DatasetError that names what was found and what is accepted.
    """
    if path.is_dir():
        return list(_folder(path, name))
    if not path.is_file():
        raise DatasetError(f"{name}: there is no such file")
    if path.stat().st_size == 0:
        raise DatasetError(f"{name} is empty")
    lower = name.lower()
    if lower.endswith((".tar", ".tar.gz", ".tgz", ".zip")):
        return list(_folder(_unpacked(path, name, scratch), name))
    gzipped = lower.endswith(".gz")
    inner = lower.removesuffix(".gz")
    kind = SUFFIXES.get(PurePosixPath(inner).suffix)
    if kind is None:
        raise DatasetError(f"{name}: found the ending {PurePosixPath(name).suffix!r}, accepted are {ACCEPTED}")
    source = Source(path, name, kind, gzipped)
    head = _head(source)
    if head[:4] == b"PK\x03\x04":
        raise DatasetError(f"{name} is a zip archive under another name; unpack it and bring the file itself")
    if head[:4] == b"PAR1":
        kind = "parquet"
    elif kind == "parquet":
        raise DatasetError(f"{name} does not begin as a Parquet file does; it was cut short or is something else")
    else:
        _check_encoding(head, name)
        kind = _json_or_lines(head) if kind == "json" else kind
    if kind == "parquet" and gzipped:
        # Parquet is read from its end, which a stream cannot give.
        target = scratch / "unpacked.parquet"
        stream, raw = source.open()
        try:
            with raw, target.open("wb") as out:
                shutil.copyfileobj(stream, out, 1 << 20)
        except DAMAGED as error:
            raise DatasetError(f"{name} cannot be unpacked: {error}") from error
        return [Source(target, name, "parquet")]
    return [Source(path, name, kind, gzipped)]


def _head(source: Source) -> bytes:
    stream, raw = source.open()
    with raw:
        try:
            return stream.read(1 << 16)
        except DAMAGED as error:
            raise DatasetError(f"{source.name} cannot be unpacked: {error}") from error


def _check_encoding(head: bytes, name: str) -> None:
    for mark, encoding in ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"), (b"\x00\x00\xfe\xff", "UTF-32")):
        if head.startswith(mark):
            raise DatasetError(f"{name} is {encoding} text, expected UTF-8; save it again as UTF-8")
    if b"\x00" in head[:4096]:
        raise DatasetError(f"{name} holds zero bytes: it is no text, or UTF-16 without a mark; expected UTF-8 text")


def _json_or_lines(head: bytes) -> Kind:
    """A file called .json often holds one object a line."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    first, end, rest = text.partition(b"\n")
    if not text.startswith(b"{") or not end or not rest.strip():
        return "json"
    try:
        json.loads(first)
    except ValueError:
        return "json"
    return "jsonl"


def _folder(path: Path, name: str) -> Iterator[Source]:
    """The Arrow files of a ``save_to_disk`` folder, split by split for a DatasetDict."""
    inside = [path, *sorted(p for p in path.iterdir() if p.is_dir())]
    for root in inside:
        if (root / "dataset_dict.json").is_file():
            for word in _listed(root / "dataset_dict.json", "splits", name):
                part = root / PurePosixPath(str(word)).name
                if not part.is_dir():
                    raise DatasetError(f"{name}: dataset_dict.json names the split {word!r}, but its folder is missing")
                yield from _arrow_files(part, f"{name}/{word}", split_named(word))
            return
        if (root / "state.json").is_file():
            yield from _arrow_files(root, name, split_named(root.name))
            return
    raise DatasetError(
        f"{name} holds no save_to_disk folder (expected dataset_dict.json, or state.json and *.arrow, in it); "
        "unpack other archives and bring the file itself"
    )


def _listed(path: Path, key: str, name: str) -> list[Any]:
    """The list below a key of one of the folder's own documents, empty where the key is missing."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{name}: {path.name} is no JSON: {error}") from error
    found = document.get(key, []) if isinstance(document, dict) else document
    if not isinstance(document, dict) or not isinstance(found, list):
        raise DatasetError(f"{name}: expected {path.name} to be an object with a list {key!r}, found {str(found)[:80]}")
    return found


def _arrow_files(folder: Path, name: str, split: SplitName | None) -> Iterator[Source]:
    state = folder / "state.json"
    listed = _listed(state, "_data_files", name) if state.is_file() else []
    if unnamed := [one for one in listed if not (isinstance(one, dict) and one.get("filename"))]:
        raise DatasetError(f"{name}: expected a 'filename' in each of state.json's _data_files, found {unnamed[0]!r}")
    names = [PurePosixPath(str(one["filename"])).name for one in listed]
    for one in names or sorted(p.name for p in folder.glob("*.arrow")):
        if not (folder / one).is_file():
            raise DatasetError(f"{name}: state.json names {one!r}, but it is missing")
        yield Source(folder / one, f"{name}/{one}", "arrow", split=split)


def _unpacked(path: Path, name: str, scratch: Path) -> Path:
    """The archive's plain files in a folder of ``scratch``. Members that climb, links and devices are refused."""
    target = Path(tempfile.mkdtemp(prefix="archive-", dir=scratch))
    try:
        if name.lower().endswith(".zip"):
            with zipfile.ZipFile(path) as packed:
                members = [(i.filename, i.file_size, i) for i in packed.infolist() if not i.is_dir()]
                _check_members(name, [(n, size) for n, size, _ in members])
                for member, _size, info in members:
                    with packed.open(info) as stream:
                        _write(target / member, stream)
        else:
            with tarfile.open(path) as tar:
                found = []
                for entry in tar:
                    if not (entry.isfile() or entry.isdir()):
                        raise DatasetError(f"{name}: {entry.name!r} is a link or device, expected plain files only")
                    found.append(entry)
                    if len(found) > MOST_MEMBERS:
                        break
                files = [entry for entry in found if entry.isfile()]
                _check_members(name, [(entry.name, entry.size) for entry in files])
                for entry in files:
                    extracted = tar.extractfile(entry)
                    assert extracted is not None
                    _write(target / entry.name, extracted)
    except (tarfile.TarError, zipfile.BadZipFile, *DAMAGED) as error:
        raise DatasetError(f"{name} cannot be unpacked: {getattr(error, 'strerror', None) or error}") from error
    except RuntimeError as error:  # a zip that is encrypted, or packed in a way that Python does not know
        raise DatasetError(f"{name} cannot be unpacked: {error}") from error
    return target


def _check_members(name: str, members: list[tuple[str, int]]) -> None:
    for member, _size in members:
        path = PurePosixPath(member)
        if path.is_absolute() or ".." in path.parts or "\\" in member or ":" in "".join(path.parts[:1]):
            raise DatasetError(f"{name}: {member!r} leads out of the archive; nothing was unpacked")
    total = sum(size for _, size in members)
    if len(members) > MOST_MEMBERS or total > LARGEST_UNPACKED:
        raise DatasetError(
            f"{name} holds {len(members)} files with {total} bytes; at most {MOST_MEMBERS} and {LARGEST_UNPACKED} are unpacked"
        )


def _write(target: Path, stream: IO[bytes]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as out:
        shutil.copyfileobj(stream, out, 1 << 20)


def text_lines(stream: IO[bytes], *, longest: int) -> Iterator[tuple[int, bytes, bool]]:
    """(line number, bytes without a mark at the start, complete) of a byte stream; what exceeds ``longest`` is cut."""
    reader = io.BufferedReader(stream, 1 << 20) if not isinstance(stream, io.BufferedReader) else stream  # type: ignore[type-var]
    number = 0
    while line := reader.readline(longest):
        number += 1
        whole = len(line) < longest or line.endswith(b"\n")
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        yield number, line, whole
        while not whole:
            rest = reader.readline(longest)
            whole = len(rest) < longest or rest.endswith(b"\n")
