"""What an import found, counted while the rows stream by: a few numbers a row, never the rows."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any

from trainer.contract.dataset import HELD_OUT_FIRST, SPLIT_NAMES, SplitName
from trainer.contract.events import cleaned
from trainer.data.importers.records import Record

MOST_EXAMPLES = 100
MOST_CHARACTERS = 5000
BIN_EDGES = (0, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536)
RANK = {name: HELD_OUT_FIRST.index(name) for name in SPLIT_NAMES}


def json_text(document: Any) -> str:
    """The document as JSON for pages and databases: rows may hold NUL and lone surrogates, which neither takes; they become
    U+FFFD."""
    text = json.dumps(document)
    return json.dumps(cleaned(document)) if "\\u0000" in text or "\\ud" in text else text


class Broken:
    """Broken rows: how many, and the first hundred with their place and text."""

    def __init__(self) -> None:
        self.count = 0
        self.examples: list[dict[str, Any]] = []

    def add(self, file: str, record: Record, problem: str, text: str) -> None:
        """One broken row."""
        self.count += 1
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append({"file": file, "line": record.line, "problem": problem, "text": text})

    def as_json(self) -> dict[str, Any]:
        """Count and examples."""
        return {"count": self.count, "examples": self.examples}


class Listed:
    """Rows with something to look at: how many, and the first hundred as {file, line, …}."""

    def __init__(self) -> None:
        self.count = 0
        self.examples: list[dict[str, Any]] = []

    def add(self, file: str, line: int, **more: Any) -> None:
        """One row."""
        self.count += 1
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append({"file": file, "line": line, **more})

    def as_json(self) -> dict[str, Any]:
        """Count and examples."""
        return {"count": self.count, "examples": self.examples}


class Characters:
    """Every character of prompts and solutions with the first line that has it: what a character tokenizer must know."""

    def __init__(self) -> None:
        self.first: dict[str, int] = {}
        self._known: set[str] = set()

    def see(self, text: str, line: int) -> None:
        """Notes what is new in a text."""
        if self._known.issuperset(text):
            return
        for char in set(text) - self._known:
            self._known.add(char)
            if len(self.first) < MOST_CHARACTERS:
                self.first[char] = line


class Keys:
    """A few numbers of every row, in arrays: identity, line, split, answer, contents. About 40 bytes a row."""

    def __init__(self) -> None:
        self.uid, self.line, self.answer = array("Q"), array("Q"), array("Q")
        self.file = array("H")
        self.files: list[str] = []
        self.split, self.prompt_chars, self.completion_chars = array("B"), array("I"), array("i")
        self.digests = bytearray()

    def add(
        self,
        *,
        uid: str,
        file: str,
        line: int,
        answer: bytes,
        split: SplitName,
        prompt: int,
        completion: int,
        digest: bytes,
    ) -> None:
        """One row; ``completion`` is −1 where there is none."""
        self.uid.append(int(uid, 16))
        if not self.files or self.files[-1] != file:
            self.files.append(file)
        self.file.append(len(self.files) - 1)
        self.line.append(line)
        self.answer.append(int.from_bytes(answer[:8], "big"))
        self.split.append(RANK[split])
        self.prompt_chars.append(min(prompt, 2**32 - 1))
        self.completion_chars.append(min(completion, 2**31 - 1))
        self.digests += digest

    def __len__(self) -> int:
        return len(self.uid)


class Duplicates:
    """Which rows repeat a problem, and what follows from it. Vectorised over `Keys`."""

    def __init__(self, keys: Keys) -> None:
        import numpy as np

        self.np = np
        self.keys = keys
        self.uid = np.frombuffer(keys.uid, dtype=np.uint64) if len(keys) else np.zeros(0, np.uint64)
        self.answer = np.frombuffer(keys.answer, dtype=np.uint64) if len(keys) else np.zeros(0, np.uint64)
        self.split = np.frombuffer(keys.split, dtype=np.uint8).copy() if len(keys) else np.zeros(0, np.uint8)
        self.digest = np.frombuffer(bytes(keys.digests), dtype=np.uint64)[::2] if len(keys) else np.zeros(0, np.uint64)
        # Stable: among equal identities the rows keep the order of the file.
        self.order = np.argsort(self.uid, kind="stable")
        ordered = self.uid[self.order]
        self.fresh = np.ones(len(ordered), bool)
        self.fresh[1:] = ordered[1:] != ordered[:-1]
        self.group = np.cumsum(self.fresh) - 1

    def settle_splits(self) -> int:
        """Moves every copy of a problem into its most held-out split; how many rows were moved."""
        np = self.np
        if not len(self.uid):
            return 0
        ranks = self.split[self.order]
        lowest = np.minimum.reduceat(ranks, np.flatnonzero(self.fresh))
        settled = lowest[self.group]
        moved = int((settled != ranks).sum())
        self.split[self.order] = settled
        return moved

    def first_of_each(self) -> Any:
        """Mask of the rows that are the first with their problem and answer."""
        np = self.np
        order = np.lexsort((np.arange(len(self.uid)), self.answer, self.uid))
        fresh = np.ones(len(order), bool)
        fresh[1:] = (self.uid[order][1:] != self.uid[order][:-1]) | (self.answer[order][1:] != self.answer[order][:-1])
        keep = np.zeros(len(order), bool)
        keep[order] = fresh
        return keep

    def place(self, row: int) -> dict[str, Any]:
        """Where a row stood."""
        return {"file": self.keys.files[self.keys.file[row]], "line": self.keys.line[row]}

    def counts(self) -> dict[str, Any]:
        """Rows that repeat an earlier one: word for word, by problem, and with another answer; the first hundred."""
        np = self.np
        if not len(self.uid):
            return {"exact": 0, "normalised": 0, "conflicting": 0, "examples": []}
        exact = len(self.digest) - len(np.unique(self.digest))
        first = self.order[np.flatnonzero(self.fresh)][self.group]
        later = ~self.fresh
        differs = later & (self.answer[self.order] != self.answer[first])
        where = np.flatnonzero(later)
        where = where[np.argsort(self.order[where], kind="stable")][:MOST_EXAMPLES]
        examples = [
            {**self.place(int(self.order[i])), "repeats": self.place(int(first[i])), "other_answer": bool(differs[i])}
            for i in where
        ]
        return {
            "exact": int(exact),
            "normalised": int(later.sum()),
            "conflicting": int(differs.sum()),
            "examples": examples,
        }


def lengths(values: Any, rows: Any, found: Duplicates) -> dict[str, Any] | None:
    """Range, mean, quantiles and histogram of lengths in characters, and where the longest stands; None without any.

    ``rows`` are the positions of the values among all rows.
    """
    import numpy as np

    if not len(values):
        return None
    edges = [*BIN_EDGES, max(int(values.max()) + 1, BIN_EDGES[-1] + 1)]
    counts, _ = np.histogram(values, bins=edges)
    marks = np.quantile(values, [0.5, 0.9, 0.99])
    return {
        "count": len(values),
        "min": int(values.min()),
        "max": int(values.max()),
        "mean": float(values.mean()),
        "median": float(marks[0]),
        "p90": float(marks[1]),
        "p99": float(marks[2]),
        "longest": found.place(int(rows[int(values.argmax())])),
        "histogram": [
            {"from": int(lo), "to": int(hi) - 1, "count": int(n)}
            for lo, hi, n in zip(edges, edges[1:], counts, strict=False)
        ],
    }


def overlaps(uid: Any, split: Any, others: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Problems shared with other versions, split by split. ``others``: {id, name, path}; those without any are left out."""
    import numpy as np

    from trainer.data.importers.store import column_batches, open_version

    out = []
    mine = {name: np.unique(uid[split == RANK[name]]) for name in SPLIT_NAMES}
    for other in others:
        theirs: dict[str, list[Any]] = {name: [] for name in SPLIT_NAMES}
        try:
            with open_version(other["path"]) as file:
                for batch in column_batches(file, ("uid", "split")):
                    uids = np.array([int(one, 16) for one in batch.column("uid").to_pylist()], dtype=np.uint64)
                    splits = np.array(batch.column("split").to_pylist())
                    for name in SPLIT_NAMES:
                        theirs[name].append(uids[splits == name])
        except ValueError:
            continue  # a version that is gone or damaged says so where it is used
        shared = [
            {
                "split": a,
                "other_split": b,
                "count": len(np.intersect1d(mine[a], np.concatenate(theirs[b] or [[]]))),
            }
            for a in SPLIT_NAMES
            for b in SPLIT_NAMES
        ]
        shared = [one for one in shared if one["count"]]
        if shared:
            out.append({"id": other["id"], "name": other["name"], "shared": shared})
    return out


def tally(counter: Counter[str]) -> dict[str, int]:
    """A counter as JSON, most common first."""
    return dict(counter.most_common())
