"""Importing: a file through a mapping into a version's Parquet file with a report; and looking before doing so."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from trainer.contract.dataset import (
    ANSWER_TYPES,
    COLUMNS,
    EXTRACTOR_TITLES,
    GOLD_TITLES,
    HELD_OUT_FIRST,
    SPLIT_NAMES,
    canonical_json,
    digest,
)
from trainer.contract.dataset import Mapping as ColumnMapping
from trainer.core.errors import DatasetError
from trainer.data.importers.formats import TITLES, columns_of, recognise
from trainer.data.importers.records import Record, read
from trainer.data.importers.report import (
    Broken,
    Characters,
    Duplicates,
    Keys,
    Listed,
    json_text,
    lengths,
    overlaps,
    tally,
)
from trainer.data.importers.rows import Row, RowError, reader, split_for
from trainer.data.importers.sources import Source, sources_of
from trainer.data.importers.store import ROW_GROUP, RowWriter, file_digest, schema
from trainer.rewards.compare import Decision, compare
from trainer.rewards.prover import MathProver, available

ROWS_FILE, REPORT_FILE = "rows.parquet", "report.json"
LOOKED_AT = 200
PROGRESS_ROWS = 2000
MOST_KEPT = 100_000
SHOWN = 2000
Progress = Callable[[int, float], None]
"""(rows read, share of the file that is read)."""


def inspect(
    path: Path, name: str, *, scratch: Path, mapping: ColumnMapping | None = None, rows: int = 20
) -> dict[str, Any]:
    """What a file holds, how it would be read, and its first rows under the mapping (default: the recognised one).

    JSON: ``files``, ``format``, ``title``, ``columns`` [{path, sample, messages}], ``mapping``, ``rows`` (each with line and
    either the canonical values with the gold answer's own check, or ``problem`` and ``text``), and the ``choices``.
    """
    sources = sources_of(path, name, scratch=scratch)
    first = list(itertools.islice(itertools.chain.from_iterable(_records(one) for one in sources), LOOKED_AT))
    good = [record.value for _, record in first if record.value is not None]
    title, recognised = recognise(good) if good else (TITLES["by_hand"], ColumnMapping())
    used = mapping or recognised
    make = reader(used)
    prover = MathProver() if available() else None
    try:
        shown = [_previewed(source, record, make, used, prover) for source, record in first[:rows]]
    finally:
        if prover is not None:
            prover.close()
    return {
        "files": [one.name for one in sources],
        "format": recognised.format,
        "title": title,
        "columns": [{"path": column, "sample": _sample(value)} for column, value in columns_of(good).items()],
        "mapping": used.model_dump(mode="json"),
        "recognised": recognised.model_dump(mode="json"),
        "rows": shown,
        "choices": {
            "gold": GOLD_TITLES,
            "answer_type": ["auto", *ANSWER_TYPES],
            "extract": EXTRACTOR_TITLES,
            "formats": TITLES,
        },
    }


def _records(source: Source) -> Iterator[tuple[Source, Record]]:
    for record in read(source).records:
        yield source, record


def _sample(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:80] + "…"


def _previewed(
    source: Source, record: Record, make: Callable[..., Row], mapping: ColumnMapping, prover: MathProver | None
) -> dict[str, Any]:
    found: dict[str, Any] = {"file": source.name, "line": record.line}
    if record.value is None:
        return {**found, "problem": record.problem, "text": record.text}
    try:
        row = make(record.value, source.split)
    except RowError as error:
        return {**found, "problem": str(error), "text": _sample(record.value)}
    check = None
    if row.answer is not None:
        decision = compare(row.answer, row.answer, row.answer_type, row.checking, prover)
        check = {"right": decision.right, "by": decision.by, "why": decision.why}
    prompt = [{"role": m["role"], "content": m["content"][:SHOWN]} for m in row.prompt]
    return {
        **found,
        "id": row.id,
        "prompt": prompt,
        "answer": row.answer,
        "answer_type": row.answer_type,
        "completion": row.completion[:SHOWN] if row.completion else None,
        "split": split_for(row, mapping),
        "meta": json.loads(canonical_json(row.meta)),
        "check": check,
    }


def import_file(
    path: Path,
    name: str,
    *,
    out: Path,
    mapping: ColumnMapping,
    others: Sequence[dict[str, Any]] = (),
    progress: Progress = lambda rows, share: None,
) -> dict[str, Any]:
    """Writes ``out``/rows.parquet and ``out``/report.json and returns the report. Raises DatasetError: nothing usable, or
    broken rows without leave to skip
    them (report.json then lists them)."""
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    draft, final = out / f".{ROWS_FILE}.draft", out / ROWS_FILE
    prover = MathProver() if available() else None
    work = _Import(mapping, prover)
    writer = RowWriter(draft)
    try:
        for source in sources_of(path, name, scratch=out):
            reading = read(source)
            for record in reading.records:
                if work.take(reading.source, record, writer) % PROGRESS_ROWS == 0:
                    progress(work.read, reading.done())
    except BaseException:
        writer.abandon()
        raise
    finally:
        if prover is not None:
            prover.close()
    if work.broken.count and not mapping.skip_broken:
        writer.abandon()
        first = work.broken.examples[0]
        more = f" and {work.broken.count - 1} more" if work.broken.count > 1 else ""
        raised = DatasetError(
            f"{first['file']}, line {first['line']}: {first['problem']}{more}; repair the file, change the mapping, or choose "
            "to skip broken rows"
        )
        _write_report(out, {"broken": work.broken.as_json(), "read": work.read})
        raise raised
    if not len(work.keys):
        writer.abandon()
        raise DatasetError(f"{name} holds no usable row ({work.read} read)")
    progress(work.read, 1.0)
    report = work.finish(writer, draft, final, others)
    report |= {
        "file": name,
        "seconds": time.monotonic() - began,
        "sha256": file_digest(final),
        "bytes": final.stat().st_size,
    }
    _write_report(out, report)
    draft.unlink(missing_ok=True)
    return report


def _write_report(out: Path, report: dict[str, Any]) -> None:
    partial = out / f".{REPORT_FILE}"
    partial.write_text(json_text(report), encoding="utf-8")
    os.replace(partial, out / REPORT_FILE)


class _Import:
    """The state of one import: counters, and the writer's rows."""

    def __init__(self, mapping: ColumnMapping, prover: MathProver | None) -> None:
        self.mapping, self.prover = mapping, prover
        self.make = reader(mapping)
        self.read = 0
        self.broken, self.keys, self.characters = Broken(), Keys(), Characters()
        self.empty, self.failed = Listed(), Listed()
        self.types: Counter[str] = Counter()
        self.decided: Counter[str] = Counter()
        self._config = canonical_json(mapping.checking.model_dump(mode="json"))
        self._decided: dict[tuple[str, str], Decision] = {}

    def take(self, source: Source, record: Record, writer: RowWriter) -> int:
        """One record: written, or noted as broken. Returns how many were read."""
        self.read += 1
        if record.value is None:
            self.broken.add(source.name, record, record.problem, record.text)
            return self.read
        try:
            row = self.make(record.value, source.split)
        except RowError as error:
            self.broken.add(source.name, record, str(error), _sample(record.value))
            return self.read
        text = "".join(m["content"] for m in row.prompt)
        meta = canonical_json(row.meta)
        if not _is_storable(text, row.answer, row.completion, row.id, meta):
            self.broken.add(
                source.name, record, "half a character (a lone surrogate, \\ud800 to \\udfff)", _sample(record.value)
            )
            return self.read
        self._check(row, source.name, record.line)
        split = split_for(row, self.mapping)
        config = self._config
        if row.checking is not self.mapping.checking:
            config = canonical_json(row.checking.model_dump(mode="json"))
        verifier = {"name": "compare", "config": config}
        values = (
            row.id, row.uid, row.prompt, row.answer, row.answer_type, verifier, row.completion, meta, split, row.source_hash,
            source.name, record.line,
        )  # fmt: skip
        writer.add(values)
        self.characters.see(text, record.line)
        if row.completion:
            self.characters.see(row.completion, record.line)
        self.keys.add(
            uid=row.uid,
            file=source.name,
            line=record.line,
            answer=digest(row.answer or ""),
            split=split,
            prompt=len(text),
            completion=-1 if row.completion is None else len(row.completion),
            # What a row says, without its place in the file: the same content from another file is the same version.
            digest=digest("\x1f".join((*_parts(row), config, meta))),
        )
        return self.read

    def _check(self, row: Row, file: str, line: int) -> None:
        self.types[row.answer_type] += 1
        if row.answer is None:
            self.empty.add(file, line)
            return
        decision = self._own_decision(row, row.answer)
        self.decided[decision.by] += 1
        if decision.right is False:
            self.failed.add(file, line, answer=row.answer[:200], type=row.answer_type, why=decision.why)

    def _own_decision(self, row: Row, answer: str) -> Decision:
        """The gold answer held against itself; answers repeat, so those judged by the mapping's own rules are kept."""
        if row.checking is not self.mapping.checking:
            return compare(answer, answer, row.answer_type, row.checking, self.prover)
        key = (answer, row.answer_type)
        found = self._decided.get(key)
        if found is None:
            found = compare(answer, answer, row.answer_type, row.checking, self.prover)
            if len(self._decided) < MOST_KEPT and len(answer) < 100:
                self._decided[key] = found
        return found

    def finish(self, writer: RowWriter, draft: Path, final: Path, others: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Settles duplicates and splits, writes the final file, and sums up."""
        import numpy as np

        found = Duplicates(self.keys)
        repeated = found.counts()
        moved = found.settle_splits()
        keep = found.first_of_each() if self.mapping.duplicates == "drop" else np.ones(len(self.keys), bool)
        content = hashlib.sha256()
        everything = np.frombuffer(bytes(self.keys.digests), dtype=np.uint8).reshape(-1, 16)
        content.update(everything[keep].tobytes())
        content.update(found.split[keep].tobytes())
        content_hash = content.hexdigest()
        metadata = {"content_hash": content_hash, "rows": int(keep.sum())}
        if moved == 0 and bool(keep.all()):
            writer.close(metadata)
            os.replace(draft, final)
        else:
            writer.close({})
            _rewrite(draft, final, keep, found.split, metadata)
        split, uid, rows = found.split[keep], found.uid[keep], np.flatnonzero(keep)
        completion_chars = np.frombuffer(self.keys.completion_chars, dtype=np.int32)[keep]
        worked = completion_chars >= 0
        return {
            "content_hash": content_hash,
            "rows": int(keep.sum()),
            "problems": len(np.unique(uid)),
            "read": self.read,
            "broken": self.broken.as_json(),
            "duplicates": {**repeated, "dropped": int((~keep).sum())},
            "splits": {name: int((split == HELD_OUT_FIRST.index(name)).sum()) for name in SPLIT_NAMES},
            "problems_by_split": {
                name: len(np.unique(uid[split == HELD_OUT_FIRST.index(name)])) for name in SPLIT_NAMES
            },
            "moved_between_splits": moved,
            "empty_gold": self.empty.as_json(),
            "gold_check": {"failed": self.failed.as_json(), "decided_by": tally(self.decided)},
            "answer_types": tally(self.types),
            "completions": int(worked.sum()),
            "prompt_chars": lengths(np.frombuffer(self.keys.prompt_chars, dtype=np.uint32)[keep], rows, found),
            "completion_chars": lengths(completion_chars[worked], rows[worked], found),
            "characters": self.characters.first,
            "overlaps": overlaps(uid, split, others),
            "prover": self.prover is not None,
        }


def _parts(row: Row) -> Iterator[str]:
    """What a row says, as texts that no other row has unless it says the same."""
    yield from (row.id, row.answer_type)
    # Absent and empty differ.
    yield from ("-" if text is None else f"+{len(text)}{text}" for text in (row.answer, row.completion))
    for message in row.prompt:
        yield f"{message['role']}\x1e{len(message['content'])}{message['content']}"


def _is_storable(*texts: str | None) -> bool:
    """Whether all are Unicode text; JSON may hold halves of characters, which no file can."""
    for text in texts:
        if text and not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                return False
    return True


def _rewrite(draft: Path, final: Path, keep: Any, split: Any, metadata: dict[str, Any]) -> None:
    """The draft's kept rows with their settled splits."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = pa.array(HELD_OUT_FIRST)
    place = COLUMNS.index("split")
    partial = final.with_name(f".{final.name}.partial")
    writer = RowWriter(partial)
    at = 0
    with pq.ParquetFile(draft) as file:
        for batch in file.iter_batches(batch_size=ROW_GROUP):
            end = at + batch.num_rows
            columns = list(batch.columns)
            columns[place] = names.take(pa.array(split[at:end].astype("int32")))
            whole = pa.RecordBatch.from_arrays(columns, schema=schema())
            writer.add_batch(whole.filter(pa.array(keep[at:end])))
            at = end
    writer.close(metadata)
    os.replace(partial, final)
