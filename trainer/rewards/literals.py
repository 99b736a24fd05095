"""Text that stands for a value by itself: numbers, lists and sets, with the wrappers that answers come in.

Nothing is calculated here: ``7*13`` is no number. Everything returns None for what it cannot read, and raises nothing.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

LONGEST = 2000
"""Longer answers are compared as text only."""

_BLANKS = re.compile(r"\s+")
_WRAPPERS = (
    re.compile(r"^\$+(.*?)\$+$", re.S),
    re.compile(r"^\\\((.*)\\\)$", re.S),
    re.compile(r"^\\\[(.*)\\\]$", re.S),
    re.compile(r"^\\(?:text|mathrm|mathbf|textbf|mbox|boxed)\{([^{}]*)\}$", re.S),
    re.compile(r"^\*\*(.+)\*\*$", re.S),
    re.compile(r"^`(.+)`$", re.S),
    re.compile(r"^\\left(?=[(\[{\\])(.*)\\right", re.S),
)
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)(?P<currency>\\?\$|€|£)?"
    r"(?P<number>(?:\d{1,3}(?:(?:,|\{,\}|\\,|\u202f)\d{3})+|\d+)(?:\.\d*)?|\.\d+)"
    r"(?P<exponent>(?:[eE][+-]?\d{1,4})?)"
    r"(?P<rest>\s*(?:\\?%|°|\^\\circ|\\?\s?(?:\\text\{\s*[A-Za-z. ]+\}|[A-Za-z]{1,20}))?)"
)
_FRACTION = re.compile(r"([+-]?)\s*(?:\\[dt]?frac\{(\d{1,40})\}\{(\d{1,40})\}|(\d{1,40})\s*/\s*(\d{1,40}))")
_SEPARATORS = re.compile(r"(?:,|\{,\}|\\,|\u202f)")
# Names of constants and functions are no units.
_NO_UNITS = {"pi", "e", "i", "x", "y", "z", "n", "sqrt", "infinity", "inf", "nan", "or", "and"}


def plain(text: str) -> str:
    """Without wrappers (dollar signs, ``\\text{}``, bold), surrounding blanks, a final full stop; NFKC, minus as ``-``."""
    if text.isascii() and text.isalnum():
        return text
    text = text if text.isascii() else unicodedata.normalize("NFKC", text).replace("\u2212", "-")
    text = text.strip()
    for _ in range(4):
        before = text
        for wrapper in _WRAPPERS[:-1]:
            if (found := wrapper.match(text)) and _balanced(found.group(1)):
                text = found.group(1).strip()
        if text.endswith(".") and not text.endswith(".."):
            text = text[:-1].rstrip()
        if text == before:
            break
    return text.replace("\\left", "").replace("\\right", "") if "\\left" in text else text


def _balanced(text: str) -> bool:
    """Whether no ``$`` or brace of the inside belongs to the outside (``$1$ or $2$`` is not wrapped as a whole)."""
    return "$" not in text.replace("\\$", "") and text.count("{") == text.count("}")


def folded(text: str, *, case_sensitive: bool = False) -> str:
    """Normal form of a text answer: plain, single blanks, without case."""
    text = _BLANKS.sub(" ", plain(text))
    return text if case_sensitive else text.casefold()


@dataclass(frozen=True)
class Number:
    """``value`` with what it was written with; ``percent`` because 50% is not 50."""

    value: Fraction
    percent: bool = False
    fraction: bool = False
    whole: bool = False

    @property
    def key(self) -> str:
        """One text for equal numbers."""
        v = self.value
        shown = str(v.numerator) if v.denominator == 1 else f"{v.numerator}/{v.denominator}"
        return shown + "%" * self.percent


def number(text: str, *, fractions: bool = False) -> Number | None:
    """A literal number, thousands separators, currency or one unit allowed; a fraction of whole numbers on request."""
    text = plain(text)
    if len(text) > 200:
        return None
    if text.isascii() and text.isdigit():
        return Number(Fraction(int(text)), whole=True)
    if found := _NUMBER.fullmatch(text):
        unit = re.sub(r"\\text|[\\{}\s.]", "", found["rest"])
        if unit.lower() in _NO_UNITS:
            return None
        digits = _SEPARATORS.sub("", found["number"])
        if not digits.isascii():
            return None
        value = Fraction(Decimal(found["sign"] + digits + found["exponent"])) if _small(found["exponent"]) else None
        if value is None:
            return None
        whole = value.denominator == 1 and (not found["exponent"])
        return Number(value, percent="%" in unit, whole=whole)
    if fractions and (parts := _FRACTION.fullmatch(text)):
        top, bottom = int(parts[2] or parts[4]), int(parts[3] or parts[5])
        return Number(Fraction(top if parts[1] != "-" else -top, bottom), fraction=True) if bottom else None
    return None


def _small(exponent: str) -> bool:
    return not exponent or abs(int(exponent[1:])) <= 400


@dataclass(frozen=True)
class Items:
    """Entries between brackets, or with commas or blanks between them. ``bracket`` is "{", "[", "(" or ""."""

    entries: tuple[str, ...]
    bracket: str


_CLOSING = {"{": "}", "[": "]", "(": ")"}


def items(text: str) -> Items | None:
    """``{1, 2}``, ``[1,2]``, ``(1, 2)``, ``1, 2`` or ``1 2``; None for a single thing without brackets."""
    text = plain(text)
    if len(text) > LONGEST:
        return None
    text = text.replace("\\{", "{").replace("\\}", "}")
    if text.startswith("["):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            parsed = None
        if isinstance(parsed, list):
            return Items(tuple(one if isinstance(one, str) else json.dumps(one) for one in parsed), "[")
    bracket = ""
    if text[:1] in _CLOSING and text.endswith(_CLOSING[text[0]]) and _encloses(text):
        bracket, text = text[0], text[1:-1].strip()
        if not text:
            return Items((), bracket)
    entries = _split(text)
    if entries is None:
        return None
    if not bracket and len(entries) < 2:
        words = text.split()
        if len(words) < 2 or any(number(word, fractions=True) is None for word in words):
            return None
        entries = words
    return Items(tuple(entry.strip().strip("'\"") for entry in entries), bracket)


def _encloses(text: str) -> bool:
    """Whether the bracket that opens first closes last."""
    depth = 0
    for position, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if depth == 0:
            return position == len(text) - 1
    return False


def _split(text: str) -> list[str] | None:
    """Parts between the commas outside of brackets; commas of thousands stay. None where brackets don't match."""
    if number(text) is not None:
        return [text]
    parts, depth, begin = [], 0, 0
    for position, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if depth < 0:
            return None
        if char == "," and depth == 0:
            parts.append(text[begin:position])
            begin = position + 1
    return [*parts, text[begin:]] if depth == 0 else None
