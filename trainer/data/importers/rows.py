"""One record of a file as one canonical row, by a mapping."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.contract.dataset import (
    Checking,
    SplitName,
    canonical_json,
    digest,
    problem_uid,
    split_named,
    split_of_uid,
)
from trainer.contract.dataset import Mapping as ColumnMapping
from trainer.data.importers.records import TOO_DEEP, too_deep
from trainer.rewards.extract import after_hashes, last_boxed
from trainer.rewards.literals import folded, items, number

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ROLES = {"human": "user", "gpt": "assistant", "model": "assistant"}
Messages = list[dict[str, str]]


class RowError(ValueError):
    """The record is no row under this mapping; the text says what was found and expected."""


@dataclass(slots=True)
class Row:
    """A canonical row without its place in the file. ``given_split`` is the file's own, where it has one."""

    id: str
    uid: str
    prompt: Messages
    answer: str | None
    answer_type: str
    checking: Checking
    completion: str | None
    meta: dict[str, Any]
    given_split: SplitName | None
    source_hash: str


def reader(mapping: ColumnMapping) -> Callable[[Mapping[str, Any], SplitName | None], Row]:
    """The function from a record (and its folder's split) to its row. That function raises RowError."""
    m = mapping
    gold_of = _GOLD[m.gold]
    plain = m.checking
    any_of = plain.model_copy(update={"any_of": True})

    def row(record: Mapping[str, Any], folder_split: SplitName | None) -> Row:
        raw = at(record, m.prompt)
        if raw is None or raw == "":
            raise RowError(
                f"the prompt column {m.prompt!r} {'is empty' if m.prompt in record else 'is missing or empty'}"
            )
        messages = messages_of(raw, m.prompt)
        completion = None
        if messages[-1]["role"] == "assistant":
            completion = messages.pop()["content"]
            if not messages:
                raise RowError(f"{m.prompt!r} holds an answer and no prompt before it")
        options = options_of(at(record, m.options), m.options) if m.options else ()
        if options:
            listed = "\n".join(f"{letter}. {text}" for letter, text in options)
            _append(messages, f"\n{listed}")
        if m.suffix:
            _append(messages, m.suffix)
        system = at(record, m.system) if m.system else None
        system = system if isinstance(system, str) and system else m.system_text
        if system and messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": system})
        if m.completion:
            completion = completion_of(at(record, m.completion), completion)
        checking = plain
        answer = kind = None
        if m.answer:
            found = at(record, m.answer)
            if found is not None:
                answer, listed_as = gold_of(found, options)
                if listed_as == "any_of":
                    checking = any_of
                kind = listed_as if listed_as not in ("", "any_of") else None
        if options:
            checking = checking.model_copy(update={"options": options})
        if answer is not None and not answer.strip():
            answer = None
        if m.answer_type != "auto":
            kind = m.answer_type
        elif kind is None:
            kind = type_of(answer, checking)
        uid = problem_uid(messages)
        name = at(record, m.id) if m.id else None
        split: SplitName | None = folder_split
        if m.split:
            word = at(record, m.split)
            if word is not None and (split := split_named(word)) is None:
                raise RowError(f"the split column {m.split!r} holds {word!r}, expected train, validation or test")
        return Row(
            id=uid if name is None or name == "" else str(name),
            uid=uid,
            prompt=messages,
            answer=answer,
            answer_type=kind,
            checking=checking,
            completion=completion,
            meta={path: value for path in m.meta if (value := at(record, path)) is not None} if m.meta else {},
            given_split=split,
            source_hash=digest(canonical_json(record)).hex(),
        )

    return row


def split_for(row: Row, mapping: ColumnMapping) -> SplitName:
    """The row's split before duplicates are looked at: its own, or by its problem's hash."""
    if row.given_split is None:
        return split_of_uid(row.uid, mapping.shares)
    if row.given_split == "train" and mapping.carve:
        by_hash = split_of_uid(row.uid, mapping.shares)
        return by_hash if by_hash in mapping.carve else "train"
    return row.given_split


def at(record: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path; None where there is none. A column whose own name holds the dots comes first."""
    if path in record:
        return record[path]
    value: Any = record
    for part in path.split("."):
        if isinstance(value, str) and value[:1] in "{[":
            try:
                value = _parsed(value)
            except ValueError:
                return None
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, Sequence) and not isinstance(value, str) and part.lstrip("-").isdigit():
            value = value[int(part)] if -len(value) <= int(part) < len(value) else None
        else:
            return None
    return value


def _parsed(text: str) -> Any:
    """The value that a cell holds as JSON text. Raises ValueError where it is none, or nested too deeply to be used."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    if too_deep(value):
        raise ValueError(TOO_DEEP)
    return value


def messages_of(value: Any, path: str) -> Messages:
    """Text, messages, or messages as JSON text, as a list of {role, content}."""
    if isinstance(value, str):
        if value.startswith("[{"):
            try:
                value = _parsed(value)
            except ValueError:
                return [{"role": "user", "content": value}]
        else:
            return [{"role": "user", "content": value}]
    if not isinstance(value, list) or not value:
        raise RowError(f"{path!r} holds {type(value).__name__}, expected a text or messages with role and content")
    out: Messages = []
    for one in value:
        if not isinstance(one, Mapping):
            raise RowError(f"{path!r}: a message is {type(one).__name__}, expected role and content")
        role, content = one.get("role", one.get("from")), one.get("content", one.get("value"))
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
        if not isinstance(role, str) or not isinstance(content, str):
            raise RowError(
                f"{path!r}: a message has role {role!r} and content {type(content).__name__}, expected two texts"
            )
        out.append({"role": _ROLES.get(role, role), "content": content})
    return out


def _append(messages: Messages, text: str) -> None:
    last = next((one for one in reversed(messages) if one["role"] == "user"), messages[-1])
    last["content"] += text


def completion_of(value: Any, otherwise: str | None) -> str | None:
    """A worked solution: a text, the assistant's last message, or the first of several texts."""
    if isinstance(value, list) and value and isinstance(value[0], str):
        value = value[0]
    if isinstance(value, (list, str)) and value and (isinstance(value, list) or value.startswith("[{")):
        try:
            messages = messages_of(value, "completion")
        except RowError:
            return otherwise
        last = messages[-1]
        return last["content"] if last["role"] == "assistant" or isinstance(value, str) else otherwise
    return value if isinstance(value, str) and value else otherwise


def options_of(value: Any, path: str | None) -> tuple[tuple[str, str], ...]:
    """Options with their letters, from a list, {letter: text}, {label: [...], text: [...]}, or any of these as JSON text."""
    if isinstance(value, str):
        try:
            value = _parsed(value)
        except ValueError:
            raise RowError(f"the options column {path!r} holds a text, expected a list or an object") from None
    if isinstance(value, Mapping):
        labels, texts = value.get("label"), value.get("text")
        if isinstance(labels, list) and isinstance(texts, list):
            # Labels may be numbers; letters are what is asked for.
            return tuple(
                (_letter(i, label), str(text)) for i, (label, text) in enumerate(zip(labels, texts, strict=False))
            )
        return tuple((str(letter), str(text)) for letter, text in value.items() if text is not None)
    if isinstance(value, list) and value and len(value) <= len(LETTERS):
        # A text that brings its own letter, "A) four", is not given a second one.
        stripped = [re.sub(rf"^\(?{LETTERS[i]}[).:]\s+", "", str(text)) for i, text in enumerate(value)]
        return tuple(zip(LETTERS, stripped, strict=False))
    raise RowError(f"the options column {path!r} holds {type(value).__name__}, expected a list or an object")


def _letter(position: int, label: Any) -> str:
    text = str(label)
    return text if len(text) == 1 and text.isalpha() else LETTERS[position]


# Gold answers: (value found, options) → (text, type where the value itself tells it, or "any_of").


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _as_is(value: Any, options: Any) -> tuple[str, str]:
    if isinstance(value, list):
        return (_text(value[0]), "") if len(value) == 1 else (_text(value), "list")
    return _text(value), ""


def _hashes(value: Any, options: Any) -> tuple[str, str]:
    found = after_hashes(_text(value))
    return ("" if found is None else found.replace(",", "").replace("$", "").strip()), ""


def _boxed(value: Any, options: Any) -> tuple[str, str]:
    return last_boxed(_text(value)) or "", ""


def _json(value: Any, options: Any) -> tuple[str, str]:
    if isinstance(value, str):
        try:
            value = _parsed(value)
        except ValueError:
            return value, ""
    if isinstance(value, Mapping) and isinstance(value.get("target"), (list, str)):
        value = value["target"]
        return _any_of(value, options) if isinstance(value, list) else _as_is(value, options)
    return _as_is(value, options)


def _any_of(value: Any, options: Any) -> tuple[str, str]:
    if not isinstance(value, list):
        return _json(value, options) if isinstance(value, str) and value.startswith("[") else _as_is(value, options)
    texts = [_text(one) for one in value if one is not None]
    if len(texts) < 2:
        return (texts[0] if texts else ""), ""
    return json.dumps(texts, ensure_ascii=False), "any_of"


def _option(value: Any, options: tuple[tuple[str, str], ...]) -> tuple[str, str]:
    if not options:
        return _as_is(value, options)
    letters = [letter for letter, _ in options]
    if isinstance(value, bool):
        raise RowError(f"the answer is {value}, expected a letter, a position or the text of an option")
    if isinstance(value, float) and value == int(value):
        value = int(value)
    text = str(value).strip()
    if isinstance(value, str):
        bare = text.strip("().: ")
        if bare.upper() in [one.upper() for one in letters]:
            return letters[[one.upper() for one in letters].index(bare.upper())], "choice"
        same = [letter for letter, said in options if folded(said) == folded(text)]
        if len(same) == 1:
            return same[0], "choice"
    if text.isdigit() and int(text) < len(options):
        return letters[int(text)], "choice"
    raise RowError(f"the answer {text!r} is none of the {len(options)} options (letter, position from 0, or text)")


_GOLD: dict[str, Callable[[Any, Any], tuple[str, str]]] = {
    "as_is": _as_is, "hashes": _hashes, "boxed": _boxed, "json": _json, "any_of": _any_of, "option": _option,
}  # fmt: skip

_INTEGER = re.compile(r"[+-]?\d{1,3}(,\d{3})+|[+-]?\d+")
_MATHS = re.compile(r"\\[a-zA-Z]+|[\^=_]|\d\s*[a-z]\b|[a-z]\s*[+*/]|\d\s*[+*/]\s*\d")
_DATE = re.compile(r"\d{1,4}[-/.:]\d{1,2}([-/.:]\d{1,4})?")


def type_of(answer: str | None, checking: Checking) -> str:
    """The comparer that fits a gold answer: numbers with zeros in front, dates and times are text."""
    if answer is None:
        return "string"
    if checking.any_of:
        kinds = {type_of(one, checking.model_copy(update={"any_of": False})) for one in json.loads(answer)}
        return kinds.pop() if len(kinds) == 1 else "string"
    text = answer.strip()
    if text.isascii() and text.isdigit():
        return "string" if text[0] == "0" and len(text) > 1 else "int"
    if _INTEGER.fullmatch(text):
        return "string" if re.match(r"[+-]?0\d", text) else "int"
    if _DATE.fullmatch(text) and not re.fullmatch(r"\d+(?:\.\d+|/\d+)", text):
        return "string"
    if (found := number(text, fractions=True)) is not None:
        return "int" if found.whole and not found.percent else "float"
    if text[:1] in "[{" or text.startswith("\\{"):
        listed = items(text)
        if listed is not None and listed.bracket in ("[", "{"):
            return "list" if listed.bracket == "[" else "set"
    return "expr" if _MATHS.search(text) or (text[:1] == "(" and "," in text) else "string"
