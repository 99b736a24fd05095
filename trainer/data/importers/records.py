"""Records of a source, one after another: a dictionary with its place, or what is wrong at that place."""

from __future__ import annotations

import codecs
import csv
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from trainer.contract.dataset import SplitName
from trainer.core.errors import DatasetError
from trainer.data.importers.sources import DAMAGED, Source, text_lines

LONGEST_RECORD = 64 << 20
LARGEST_JSON_OBJECT = 512 << 20
SHOWN = 200
DEEPEST = 64
TOO_DEEP = f"nested too deeply: expected at most {DEEPEST} levels of lists and objects"
BATCH = 1000


@dataclass(slots=True)
class Record:
    """``value`` is the record; where it is None, ``problem`` says what is wrong and ``text`` what was found.

    ``line`` counts lines of text files, rows of tables, and the line where an element of a JSON array begins, from 1.
    """

    line: int
    value: dict[str, Any] | None
    problem: str = ""
    text: str = ""


@dataclass
class Reading:
    """A source being read. ``done()`` is the share that has been read, 0 to 1."""

    source: Source
    records: Iterator[Record]
    done: Callable[[], float]

    @property
    def name(self) -> str:
        """What people call the file."""
        return self.source.name

    @property
    def split(self) -> SplitName | None:
        """The split that the folder gives all of the file's rows."""
        return self.source.split


def read(source: Source) -> Reading:
    """Opens a source. Iterating may raise DatasetError where nothing after the fault can be read."""
    if source.kind in ("parquet", "arrow"):
        return _table(source)
    stream, raw = source.open()
    size = max(1, source.path.stat().st_size)
    parser = {"jsonl": _json_lines, "json": _json_values}.get(source.kind)
    records = parser(stream, source.name) if parser else _delimited(stream, source)
    return Reading(
        source, _closing(records, raw, source.name), lambda: 1.0 if raw.closed else min(1.0, raw.tell() / size)
    )


def _closing(records: Iterator[Record], raw: IO[bytes], name: str) -> Iterator[Record]:
    with raw:
        try:
            yield from records
        except DAMAGED as error:
            raise DatasetError(f"{name} ends too early or is damaged: {error}") from error


def too_deep(value: Any, levels: int = DEEPEST) -> bool:
    """Whether a value has more levels of lists and objects: what reads, cleans and stores rows goes down level by level."""
    if not isinstance(value, (dict, list)):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(too_deep(one, levels - 1) for one in inner if isinstance(one, (dict, list)))


def _shown(text: str | bytes) -> str:
    if isinstance(text, bytes):
        text = text[: SHOWN * 4].decode("utf-8", "replace")
    text = text.strip("\r\n")
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def _as_record(line: int, value: Any) -> Record:
    if too_deep(value):
        return Record(line, None, TOO_DEEP)
    if isinstance(value, dict):
        return Record(line, value)
    text = _shown(json.dumps(value, ensure_ascii=False))
    return Record(line, None, f"expected an object with named columns, found {_kind(value)}", text)


def _kind(value: Any) -> str:
    names = {
        list: "a list",
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        type(None): "null",
    }
    return names.get(type(value), type(value).__name__)


def _json_lines(stream: IO[bytes], name: str) -> Iterator[Record]:
    for number, line, whole in text_lines(stream, longest=LONGEST_RECORD):
        if not whole:
            yield Record(number, None, f"the line is longer than {LONGEST_RECORD >> 20} MB", _shown(line))
            continue
        try:
            value = json.loads(line.decode("utf-8").rstrip())
        except UnicodeDecodeError as error:
            problem = f"not UTF-8: byte 0x{line[error.start]:02x} at position {error.start + 1}"
            yield Record(number, None, problem, _shown(line))
        except (ValueError, RecursionError) as error:
            if not line.strip():
                continue
            yield Record(number, None, _json_problem(error), _shown(line))
        else:
            yield _as_record(number, value)


def _json_problem(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"no JSON: {error.msg.removesuffix(' at')} at column {error.colno}"
    if isinstance(error, RecursionError):
        return TOO_DEEP
    return f"a number with more than {sys.get_int_max_str_digits()} digits"


class _Text:
    """Text of a stream in a window that grows on demand; ``at`` is the place in it, ``line`` that place's line."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        self.stream, self.name = stream, name
        self.decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self.text, self.at, self.line, self.over = "", 0, 1, False

    def more(self) -> bool:
        """Reads on; False at the end."""
        if self.over:
            return False
        chunk = self.stream.read(1 << 20)
        self.over = not chunk
        try:
            self.text = self.text[self.at :] + self.decoder.decode(chunk, final=self.over)
        except UnicodeDecodeError as error:
            line = self.line + self.text.count("\n", self.at) + error.object[: error.start].count(b"\n")
            raise DatasetError(
                f"{self.name}, line {line}: not UTF-8 (byte 0x{error.object[error.start]:02x})"
            ) from error
        self.at = 0
        return not self.over

    def go(self, to: int) -> None:
        """Moves the place on."""
        self.line += self.text.count("\n", self.at, to)
        self.at = to

    def peek(self) -> str:
        """The next character that is no blank; empty at the end."""
        while True:
            found = _NO_BLANK.search(self.text, self.at)
            self.go(found.start() if found else len(self.text))
            if found or not self.more():
                return self.text[self.at : self.at + 1]

    @property
    def rest(self) -> str:
        """What stands at the place, for messages."""
        return _shown(self.text[self.at : self.at + SHOWN + 1])


def _json_values(stream: IO[bytes], name: str) -> Iterator[Record]:
    """Elements of an array, read one by one; or the rows of an object that holds arrays."""
    text = _Text(stream, name)
    first = text.peek()
    if first == "{":
        yield from _object_of_arrays(text)
        return
    if first != "[":
        raise DatasetError(f"{name}, line {text.line}: expected a JSON array or object, found {text.rest!r}")
    text.go(text.at + 1)
    if text.peek() == "]":
        return
    while True:
        text.peek()
        line = text.line
        value = _decoded(text)
        yield _as_record(line, value)
        following = text.peek()
        if following not in (",", "]"):
            raise DatasetError(
                f"{name}, line {text.line}: expected a comma or the end of the array, found {text.rest!r}"
            )
        text.go(text.at + 1)
        if following == "]":
            return


_DECODER = json.JSONDecoder()
_NO_BLANK = re.compile(r"[^ \t\r\n]")


def _decoded(text: _Text) -> Any:
    """The value at the place, which moves behind it. What the window cuts off is read until the value is whole."""
    wanted = 1
    while True:
        try:
            value, end = _DECODER.raw_decode(text.text, text.at)
        except (ValueError, RecursionError) as error:
            where = 0
            if isinstance(error, json.JSONDecodeError):
                where = error.lineno - 1 - text.text.count("\n", 0, text.at)
            # Each time twice as much, so that a long value is not parsed again for every megabyte of it.
            grew = len(text.text) - text.at <= LONGEST_RECORD and sum(text.more() for _ in range(wanted)) > 0
            wanted *= 2
            if not grew:
                raise DatasetError(
                    f"{text.name}, line {text.line + where}: {_json_problem(error)}; found {text.rest!r}"
                ) from error
            continue
        # A number may go on behind the window's end.
        if end < len(text.text) or not text.more():
            text.go(end)
            return value


def _object_of_arrays(text: _Text) -> Iterator[Record]:
    """{column: [values]} as rows, or {name: [objects]} one array after another. Read whole, so its size is limited."""
    while text.more():
        if len(text.text) > LARGEST_JSON_OBJECT:
            raise DatasetError(
                f"{text.name} is one JSON object of more than {LARGEST_JSON_OBJECT >> 20} MB, which has to be read whole; "
                "bring it as JSONL (one object a line)"
            )
    try:
        value = json.loads(text.text)
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        raise DatasetError(f"{text.name}, line {line}: {_json_problem(error)}") from error
    arrays = {key: column for key, column in value.items() if isinstance(column, list)}
    objects = [column for column in arrays.values() if column and all(isinstance(one, dict) for one in column[:BATCH])]
    columns = len(arrays) == len(value) and len(objects) < len(arrays)
    if objects and not columns:
        for number, row in enumerate(itertools.chain.from_iterable(objects), 1):
            yield _as_record(number, row)
        return
    if not arrays or len(arrays) < len(value):
        yield _as_record(1, value)  # one record on its own
        return
    lengths = {key: len(column) for key, column in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DatasetError(f"{text.name}: the columns have different lengths: {lengths}")
    for number, values in enumerate(zip(*arrays.values(), strict=True), 1):
        yield _as_record(number, dict(zip(arrays, values, strict=True)))


def _delimited(stream: IO[bytes], source: Source) -> Iterator[Record]:
    csv.field_size_limit(LONGEST_RECORD)
    problems: dict[int, str] = {}

    def lines() -> Iterator[str]:
        for number, line, whole in text_lines(stream, longest=LONGEST_RECORD):
            if not whole:
                raise DatasetError(f"{source.name}, line {number}: longer than {LONGEST_RECORD >> 20} MB")
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                problems[number] = f"not UTF-8: byte 0x{line[error.start]:02x} at position {error.start + 1}"
                yield line.decode("utf-8", "replace")

    text = lines()
    first = next(text, "")
    delimiter = "\t" if source.kind == "tsv" else max(",;\t", key=first.count)
    try:
        header = next(csv.reader([first], delimiter=delimiter), [])
    except csv.Error as error:
        raise DatasetError(
            f"{source.name}, line 1: expected the names of the columns, found no CSV: {error}"
        ) from error
    repeated = {name for name in header if header.count(name) > 1}
    if not any(name.strip() for name in header) or repeated or problems:
        found = f"repeated columns {sorted(repeated)}" if repeated else problems.get(1) or "no names"
        raise DatasetError(f"{source.name}, line 1: expected the names of the columns, found {found}")
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    before = 0
    while True:
        line = before + 2
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Record(line, None, f"no {source.kind.upper()}: {error}")
            before = reader.line_num
            continue
        before = reader.line_num
        wrong = next((problems.pop(n) for n in range(line, before + 2) if n in problems), "") if problems else ""
        if not values:
            continue
        if len(values) != len(header):
            wrong = wrong or f"expected {len(header)} columns as in line 1, found {len(values)}"
        if wrong:
            yield Record(line, None, wrong, _shown(delimiter.join(values)))
        else:
            yield Record(line, dict(zip(header, values, strict=True)))


def _table(source: Source) -> Reading:
    import pyarrow as pa
    import pyarrow.parquet as pq

    read_rows = 0
    total = 1

    def batches() -> Iterator[Any]:
        nonlocal total
        if source.kind == "parquet":
            with pq.ParquetFile(source.path) as file:
                total = max(1, file.metadata.num_rows)
                yield from file.iter_batches(batch_size=BATCH)
            return
        with pa.memory_map(str(source.path)) as mapped:
            size = max(1, source.path.stat().st_size)
            try:
                stream = pa.ipc.open_stream(mapped)
            except pa.ArrowInvalid:
                file = pa.ipc.open_file(mapped)
                for number in range(file.num_record_batches):
                    yield from _small(file.get_batch(number))
                return
            for batch in stream:
                total = max(total, int(read_rows * size / max(1, mapped.tell())))
                yield from _small(batch)

    def records() -> Iterator[Record]:
        nonlocal read_rows
        try:
            for batch in batches():
                for record in _rows(batch, read_rows):
                    read_rows += 1
                    yield record
        except (pa.ArrowException, OSError) as error:
            raise DatasetError(f"{source.name}, after row {read_rows}: cannot be read: {error}") from error

    return Reading(source, records(), lambda: min(1.0, read_rows / total))


def _rows(batch: Any, before: int) -> Iterator[Record]:
    """The batch's rows as records; one with a value that Python cannot hold (a date beyond the year 9999, a text that is
    no UTF-8) is broken, and the others are read."""
    try:
        rows = batch.to_pylist()
    except (ValueError, OverflowError) as error:
        if batch.num_rows > 1:
            for at in range(batch.num_rows):
                yield from _rows(batch.slice(at, 1), before + at)
        else:
            yield Record(before + 1, None, f"a value that cannot be read: {error}")
        return
    for at, row in enumerate(rows, 1):
        yield _as_record(before + at, row)


def _small(batch: Any) -> Iterator[Any]:
    for start in range(0, batch.num_rows, BATCH):
        yield batch.slice(start, BATCH)
