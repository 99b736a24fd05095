"""The Parquet file of a version: written batch by batch, and read by row, by split, or by line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from trainer.contract.dataset import COLUMNS, FORMAT_VERSION, METADATA_KEY
from trainer.core.errors import DatasetError

ROW_GROUP = 20_000


def schema() -> Any:
    """Types of `COLUMNS`."""
    import pyarrow as pa

    text = pa.string()
    types = {
        "prompt": pa.list_(pa.struct([("role", text), ("content", text)])),
        "verifier": pa.struct([("name", text), ("config", text)]),
        "line": pa.int64(),
    }
    return pa.schema([(name, types.get(name, text)) for name in COLUMNS])


class RowWriter:
    """Collects columns and writes a row group whenever enough rows are there."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq

        self._schema = schema()
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
        self._columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}

    def add(self, values: Sequence[Any]) -> None:
        """One row, its values in the order of `COLUMNS`."""
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(value)
        if len(self._columns["line"]) >= ROW_GROUP:
            self._flush()

    def add_batch(self, batch: Any) -> None:
        """A record batch of the schema; batches become row groups as they come."""
        self._writer.write_batch(batch, row_group_size=ROW_GROUP)

    def close(self, metadata: dict[str, Any]) -> None:
        """Writes what is left and the footer's entry."""
        self._flush()
        self._writer.add_key_value_metadata({METADATA_KEY: json.dumps({"format": FORMAT_VERSION, **metadata}).encode()})
        self._writer.close()

    def abandon(self) -> None:
        """Closes the file as it is."""
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._columns["line"]:
            return
        arrays = [pa.array(self._columns[field.name], type=field.type) for field in self._schema]
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema), row_group_size=ROW_GROUP)
        for column in self._columns.values():
            column.clear()


def file_digest(path: Path) -> str:
    """SHA-256 of the file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_version(path: Path, *, content_hash: str = "", sha256: str = "") -> Any:
    """The version's Parquet file, after its hashes were checked where they are given. Raises DatasetError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise DatasetError(f"dataset version not found at {path}; import the dataset again or choose another version")
    if sha256 and (found := file_digest(path)) != sha256:
        raise DatasetError(
            f"{path.name}: the file's SHA-256 is {found[:16]}…, the run was launched with {sha256[:16]}…: it was changed or "
            "damaged; import the dataset again"
        )
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"{path.name} is no dataset version: {error}") from error
    entry = (file.schema_arrow.metadata or {}).get(METADATA_KEY) or (file.metadata.metadata or {}).get(METADATA_KEY)
    known = json.loads(entry) if entry else {}
    if known.get("format") != FORMAT_VERSION:
        raise DatasetError(
            f"{path.name}: found dataset format {known.get('format')!r}, this release reads {FORMAT_VERSION}; import it again"
        )
    if content_hash and known.get("content_hash") != content_hash:
        raise DatasetError(
            f"{path.name} holds version {str(known.get('content_hash'))[:16]}, the run names {content_hash[:16]}; choose the "
            "version again"
        )
    return file


def column_batches(file: Any, columns: Sequence[str]) -> Iterator[Any]:
    """Record batches of some columns, in order."""
    yield from file.iter_batches(batch_size=ROW_GROUP, columns=list(columns))
