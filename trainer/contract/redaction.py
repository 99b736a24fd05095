"""Keeping the values of secrets out of what a run writes and says.

The trainer redacts what it writes, and who reads it redacts again. A value is also found as other encodings would show
it (JSON, Python's repr, URL, HTML, base64 inside something longer, hexadecimal), and a value of several lines by its
lines. What is found becomes ``[secret NAME]``, which needs no escaping in any of these.

Text is redacted before it is shortened wherever that is ours to decide. Libraries shorten too, so at least `SHORTEST`
characters of a value are found as well where a cut left them: its beginning where no word goes on behind it (``https://``
of another address stays), its end where a text or a line begins, or behind an ellipsis.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, TextIO
from urllib.parse import quote, quote_plus

SHORTEST = 8
"""Characters of the shortest value that can be redacted: shorter ones stand in ordinary text by chance."""
_SHORTEST_LINE = 12
_LONGEST_HELD = 1 << 16
_WORD = re.compile(r"[A-Za-z0-9_]")
_CUT = ("…", "...", "\n")


class Redactor:
    """Replaces the values of ``secrets`` (by name). True when there is something to look for."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._names = {form: name for name, value in secrets.items() for form in _forms(value) if len(form) >= SHORTEST}
        longest_first = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)))
        self._heads = {form[:SHORTEST] for form in longest_first}
        self._tails = {form[-SHORTEST:] for form in longest_first}

    def __bool__(self) -> bool:
        return bool(self._names)

    def finds(self, text: str) -> bool:
        """Whether the text holds any of the values."""
        return any(form in text for form in self._names)

    def text(self, text: str) -> str:
        """The text without the values."""
        if self.finds(text):
            text = self._pattern.sub(lambda found: f"[secret {self._names[found.group()]}]", text)
        for form in self._names if self._may_hold_parts(text) else ():
            text = self._without_parts(text, form)
        return text

    def _may_hold_parts(self, text: str) -> bool:
        """Whether anything of a value may be there, whole values included: quick, and true too often."""
        return any(part in text for part in self._heads) or any(part in text for part in self._tails)

    def _without_parts(self, text: str, form: str) -> str:
        """The text without beginnings and ends of the form that a cut left."""
        shown = f"[secret {self._names[form]}]"
        at = text.find(form[:SHORTEST])
        while at >= 0:
            end = at + _shared(text[at : at + len(form)], form)
            if not _WORD.match(text, end):
                text, end = text[:at] + shown + text[end:], at + len(shown)
            at = text.find(form[:SHORTEST], end)
        end = text.rfind(form[-SHORTEST:]) + SHORTEST
        while end >= SHORTEST:
            part = text[max(0, end - len(form)) : end]
            begin = end - _shared(part[::-1], form[::-1])
            if begin == 0 or text.endswith(_CUT, 0, begin):
                text = text[:begin] + shown + text[end:]
            end = text.rfind(form[-SHORTEST:], 0, begin) + SHORTEST
        return text

    def value(self, value: Any) -> Any:
        """A JSON value, redacted in all its strings and keys. Numbers stay what they are."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        return value

    def json_line(self, line: str) -> str:
        """A JSON document as text, redacted as `value` does it; text that is no JSON is redacted as text."""
        if not self._may_hold_parts(line):
            return line
        try:
            return json.dumps(self.value(json.loads(line)), ensure_ascii=False)
        except ValueError:
            return self.text(line)

    def masked(self, data: bytes) -> bytes:
        """Bytes of the same length with every value starred out: for files whose readers count bytes."""
        for form in sorted(self._names, key=len, reverse=True):
            found = form.encode()
            data = data.replace(found, b"*" * len(found))
        return data

    def settled(self, text: str) -> int:
        """Up to where the text, which goes on, can be passed on: no value that begins before ends behind."""
        end = max(0, len(text) - max(map(len, self._names), default=0))
        across = (found.end() for found in self._pattern.finditer(text) if found.start() < end < found.end())
        return next(across, end) if self._names else len(text)

    @property
    def longest(self) -> int:
        """Bytes of the longest text looked for."""
        return max((len(form.encode()) for form in self._names), default=0)


NOTHING = Redactor({})


def _shared(one: str, other: str) -> int:
    """How many characters both begin with."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _forms(value: str) -> set[str]:
    lines = [line.strip() for line in value.splitlines()]
    parts = [value, value.strip(), *(line for line in lines if len(line) >= _SHORTEST_LINE and len(lines) > 1)]
    return {form for part in parts if part for form in _encodings(part)}


def _encodings(value: str) -> Iterable[str]:
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]
    yield html.escape(value)
    for quoted in (quote(value), quote(value, safe=""), quote_plus(value)):
        yield quoted
        yield re.sub(r"%[0-9A-F]{2}", lambda code: code.group().lower(), quoted)
    raw = value.encode()
    yield raw.hex()
    yield raw.hex().upper()
    for before in range(3):
        # Inside something longer the value begins at one of three places of a group; the characters that it shares
        # with its neighbours are left out.
        coded = base64.b64encode(bytes(before) + raw).decode()
        inner = coded[(before * 4 + 2) // 3 : (before + len(raw)) * 4 // 3]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")


class RedactingStream:
    """A text stream in front of another one: passes on whole lines without the values. What has no end of line yet
    waits, so that a value written in pieces is found too."""

    def __init__(self, stream: TextIO, redactor: Redactor) -> None:
        self._stream, self._redactor, self._held = stream, redactor, ""

    def write(self, text: str) -> int:
        """Takes the text; returns its length."""
        self._held += text
        end = self._held.rfind("\n") + 1
        if not end and len(self._held) > _LONGEST_HELD:
            end = self._redactor.settled(self._held)
        if end:
            ready, self._held = self._held[:end], self._held[end:]
            self._stream.write(self._redactor.text(ready))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes each of them."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flushes the whole lines."""
        self._stream.flush()

    def finish(self) -> None:
        """Passes on what has no end of line."""
        held, self._held = self._held, ""
        self._stream.write(self._redactor.text(held))
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
