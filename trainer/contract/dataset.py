"""Datasets: how a user's file is mapped to problems, and the one format that versions are stored in.

A version is a Parquet file (`COLUMNS`, zstd) written by `trainer.data.importers` and read by the task ``dataset``. Its
identity is the content hash: SHA-256 over the rows' content and splits, so that the same content imported again is the
same version, whatever file it came from. The file's own SHA-256 is checked before use.

The web application never parses what users upload: it starts ``python -m trainer dataset …`` and reads JSON, so that a
malformed or hostile file can take down nothing but that process, which holds no database address and no secret.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from typing import Any, Literal

from pydantic import JsonValue, model_validator

from trainer.contract.config import Section, setting

FORMAT_VERSION = 1
COLUMNS = (
    "id", "uid", "prompt", "answer", "answer_type", "verifier", "completion", "meta", "split", "source_hash", "file", "line",
)  # fmt: skip
"""``prompt`` is a list of {role, content}; ``verifier`` {name, config as JSON text}; ``meta`` JSON text; ``answer`` and
``completion`` (a worked solution, for fine-tuning) may be null; ``file`` and ``line`` say where the row stood."""
METADATA_KEY = b"unsqueeze.dataset"
"""Key of the Parquet footer's entry {format, content_hash, rows}."""

SplitName = Literal["train", "validation", "test"]
SPLIT_NAMES: tuple[SplitName, ...] = ("train", "validation", "test")
HELD_OUT_FIRST: tuple[SplitName, ...] = ("test", "validation", "train")
"""A problem that stands in several splits of a file belongs to the first of these, with all its copies."""

AnswerType = Literal["int", "float", "expr", "choice", "set", "list", "string", "program", "gym"]
ANSWER_TYPES: tuple[AnswerType, ...] = ("int", "float", "expr", "choice", "set", "list", "string", "program", "gym")
"""Which comparer judges. ``program``: tests that are run; ``gym``: the checker of reasoning-gym that the row's metadata names."""
Gold = Literal["as_is", "hashes", "boxed", "json", "any_of", "option"]
GOLD_TITLES: dict[str, str] = {
    "as_is": "The value itself",
    "hashes": "Text after ####, commas removed",
    "boxed": "Last \\boxed{…}",
    "json": "JSON text",
    "any_of": "A list; any entry is right",
    "option": "Letter of the option (from letter, index or text)",
}
Extractor = Literal["tag", "boxed", "hashes", "last_line", "whole"]
EXTRACTOR_TITLES: dict[str, str] = {
    "tag": "<answer>…</answer>",
    "boxed": "\\boxed{…}",
    "hashes": "After ####",
    "last_line": "Last line",
    "whole": "Whole answer",
}


class Checking(Section):
    """How a completion is judged against the gold answer; stored with every row as its verifier's config."""

    extract: tuple[Extractor, ...] = setting(
        ("tag", "boxed", "last_line"), "Where the answer stands", "The first place that holds one is used."
    )
    literal: bool = setting(
        True,
        "Literal number required",
        "An unevaluated expression (7×13 for 91) is wrong where the gold answer is a number.",
    )
    abs_tol: float = setting(0.0, "Absolute tolerance", "Of decimal numbers; 0 compares exactly.", ge=0)
    rel_tol: float = setting(0.0, "Relative tolerance", "Of decimal numbers; 0 compares exactly.", ge=0)
    case_sensitive: bool = setting(False, "Case matters", "For text answers.")
    any_of: bool = setting(False, "Any of a list", "The gold answer is a JSON list; each entry is right.")
    options: tuple[tuple[str, str], ...] = setting((), "Options", "Letter and text of a multiple-choice problem.")


class Shares(Section):
    """Shares of the splits, for rows without a split of their own."""

    train: float = setting(0.8, "Train", "Share of the problems.", ge=0, le=1)
    validation: float = setting(0.1, "Validation", "Share of the problems.", ge=0, le=1)
    test: float = setting(0.1, "Test", "Share of the problems.", ge=0, le=1)

    @model_validator(mode="after")
    def _whole(self) -> Shares:
        if abs(self.train + self.validation + self.test - 1) > 1e-6:
            total = self.train + self.validation + self.test
            raise ValueError(f"the shares add up to {total:g}, expected 1")
        return self


class Mapping(Section):
    """Which columns of a file mean what. A column is a dotted path: ``reward_model.ground_truth``, ``prompt.0.content``."""

    format: str = setting("by_hand", "Format", "As recognised, or by hand.")
    prompt: str = setting("prompt", "Prompt", "Text, or messages with role and content.", min_length=1)
    suffix: str = setting("", "Text after the prompt", "Appended to the last user message, an instruction for example.")
    system: str | None = setting(None, "System prompt", "Column with the system prompt.")
    system_text: str = setting("", "System prompt for all rows", "Used where the row has none.")
    answer: str | None = setting(None, "Gold answer", "Column that the gold answer is taken from.")
    gold: Gold = setting("as_is", "Gold is", "How the answer is read from that column.")
    options: str | None = setting(None, "Options", "Column with the options of multiple-choice problems.")
    answer_type: Literal["auto", "int", "float", "expr", "choice", "set", "list", "string", "program", "gym"] = setting(
        "auto", "Answer type", "Which comparer judges; auto decides for each row."
    )
    checking: Checking = Checking()
    completion: str | None = setting(
        None, "Worked solution", "Column with a completion, solution or messages, for fine-tuning."
    )
    id: str | None = setting(None, "Id", "Column with an id of the source.")
    split: str | None = setting(None, "Split", "Column with train, validation or test.")
    meta: tuple[str, ...] = setting((), "Kept along", "Columns that are kept with the row.")
    shares: Shares = Shares()
    carve: tuple[Literal["validation", "test"], ...] = setting(
        (), "Taken from train", "Splits that the file lacks and that are taken from its training rows by the shares."
    )
    duplicates: Literal["keep", "drop"] = setting(
        "drop", "Repeated problems", "Keep all copies, or the first of each (same problem and answer)."
    )
    skip_broken: bool = setting(False, "Skip broken rows", "Otherwise one broken row refuses the import.")


_BLANKS = re.compile(r"\s+")


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


def canonical_json(value: Any) -> str:
    """One text for one JSON value: sorted keys, no blanks. What JSON does not know (dates, bytes) becomes its text."""
    return "{}" if value == {} else _ENCODER.encode(value)


def digest(text: str) -> bytes:
    """16 bytes that stand for a text; lone surrogates, which JSON allows, are kept apart."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def problem_uid(messages: list[dict[str, str]]) -> str:
    """Identity of a problem: its text without the system prompt, in compatibility form, case and blanks apart. 16 hex."""
    text = "\n".join(m["content"] for m in messages if m["role"] != "system")
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return digest(_BLANKS.sub(" ", text).strip().casefold())[:8].hex()


def split_of_uid(uid: str, shares: Shares) -> SplitName:
    """The split of a problem from its identity alone, by the given shares."""
    place = int.from_bytes(digest(f"split:{uid}")[:7], "big") / 2**56
    if place < shares.test:
        return "test"
    return "validation" if place < shares.test + shares.validation else "train"


SPLIT_WORDS: dict[str, SplitName] = {
    "train": "train", "training": "train",
    "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation",
    "test": "test", "testing": "test", "eval": "test", "evaluation": "test", "heldout": "test",
}  # fmt: skip


def split_named(value: JsonValue) -> SplitName | None:
    """The split that a file's word means; None for any other word."""
    return SPLIT_WORDS.get(str(value).strip().lower())
