"""Typed comparison of an answer with the gold answer. Never raises; each decision says which comparer made it.

The order is the point: what a literal reading decides is never given to a symbolic comparer, because that one calls sets
and pairs, percentages and numbers, dates, lists and unevaluated expressions equal (or plain words different).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from trainer.contract.dataset import Checking
from trainer.rewards.extract import extract
from trainer.rewards.literals import LONGEST, Items, Number, folded, items, number, plain
from trainer.rewards.worker import failed

VERSION = "1"
"""Part of an evaluation set's identity; raise it whenever a decision may change."""
Prover = Callable[[str, str], bool | str]
"""(gold, answer) → equal as mathematics, or why that was not decided: "undecided" (unreadable), or how the checker failed."""


@dataclass(frozen=True)
class Decision:
    """``right`` None: no verdict. ``by`` names the comparer, ``why`` says more where it is wrong. ``answer`` is the key
    of the answer's class (None: nothing was read); equal answers have equal keys where a literal reading exists."""

    right: bool | None
    by: str
    why: str = ""
    answer: str | None = None


def judge(completion: str, gold: str | None, kind: str, checking: Checking, prover: Prover | None = None) -> Decision:
    """The decision on a whole completion: the answer is extracted by the row's chain and compared."""
    if kind == "program":
        return Decision(None, "program", "this release runs no programs")
    if gold is None:
        return Decision(None, "none", "the row has no gold answer")
    found = extract(completion, checking.extract)
    if found is None or not found.text:
        return Decision(False, "none", "no answer was found")
    if found.several:
        return Decision(False, "hedge", f"two different answers in one {found.place}", folded(found.text)[:LONGEST])
    return compare(gold, found.text, kind, checking, prover)


def compare(gold: str, answer: str, kind: str, checking: Checking, prover: Prover | None = None) -> Decision:
    """The decision on an answer's text. ``compare(gold, gold, …)`` is right unless the gold answer is no such type."""
    if kind == "program":
        return Decision(None, "program", "this release runs no programs")
    if checking.any_of:
        return _any_of(gold, answer, kind, replace_any(checking), prover)
    if len(answer) > LONGEST and kind != "string":
        return Decision(False, kind, f"longer than {LONGEST} characters")
    if kind in ("int", "float"):
        return _numeric(gold, answer, kind, checking, prover)
    if kind == "choice":
        return _choice(gold, answer, checking.options)
    if kind in ("set", "list"):
        return _collection(gold, answer, kind, checking)
    if kind == "expr":
        return _expression(gold, answer, checking, prover)
    mine = folded(answer, case_sensitive=checking.case_sensitive)
    right = mine == folded(gold, case_sensitive=checking.case_sensitive) and bool(mine)
    return Decision(right, "string", "" if right else "another text", mine[:LONGEST] or None)


def replace_any(checking: Checking) -> Checking:
    """The same rules for one entry of a list of right answers."""
    return checking.model_copy(update={"any_of": False})


def _any_of(gold: str, answer: str, kind: str, checking: Checking, prover: Prover | None) -> Decision:
    try:
        golds = json.loads(gold)
    except (ValueError, RecursionError):
        golds = None
    if not isinstance(golds, list) or not golds:
        return Decision(False, "any of", "the gold answer is no JSON list")
    if answer == gold:  # the list itself, as when a row is held against itself
        first = [compare(str(one), str(one), kind, checking, prover) for one in golds]
        return next((replace(one, by=f"any of: {one.by}") for one in first if not one.right), first[0])
    decisions = [compare(str(one), answer, kind, checking, prover) for one in golds]
    return next((one for one in decisions if one.right), max(decisions, key=lambda one: failed(one.by)))


def _numeric(gold: str, answer: str, kind: str, checking: Checking, prover: Prover | None) -> Decision:
    wanted = number(gold, fractions=kind == "float")
    if wanted is None or (kind == "int" and wanted.value.denominator != 1):
        return Decision(False, kind, f"the gold answer is no {'whole number' if kind == 'int' else 'number'}")
    found = number(_value_of(answer), fractions=wanted.fraction or not checking.literal)
    if found is not None:
        return _same_number(wanted, found, kind, checking)
    if not checking.literal and prover is not None:
        return _proved(gold, answer, prover)
    return Decision(False, kind, "no literal number", folded(answer))


def _same_number(wanted: Number, found: Number, by: str, checking: Checking) -> Decision:
    if wanted.percent != found.percent:
        return Decision(False, by, "per cent on one side only", found.key)
    right = wanted.value == found.value
    if not right and by != "int":
        room = max(Fraction(checking.abs_tol), Fraction(checking.rel_tol) * abs(wanted.value))
        right = abs(wanted.value - found.value) <= room
    return Decision(right, by, "" if right else "another number", found.key)


_ASSIGNED = re.compile(r"^[A-Za-z]\s*=\s*(?=[^=])")


def _value_of(text: str) -> str:
    """``x = 3`` says 3."""
    text = plain(text)
    return _ASSIGNED.sub("", text) if text.count("=") == 1 else text


_ONLY_LETTER = re.compile(r"\(?([A-Za-z])\)?[.):]?")
_LETTER_FIRST = re.compile(r"(?:\(([A-Z])\)|([A-Z])[.):])\s*\S")
_NAMED_LETTER = re.compile(
    r"\b(?:choose|choice|option|pick|select|answer)\b(?:\s+(?:is|with))?\s*:?\s*\(?([A-Z])\)?(?![A-Za-z])", re.I
)


def letter_of(text: str, options: Sequence[tuple[str, str]]) -> str | None:
    """The option that a text names: by its letter, or by its whole text. None for none or several."""
    text = plain(text)
    known = {letter.upper() for letter, _ in options} or set("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    if found := _ONLY_LETTER.fullmatch(text):
        return found[1].upper() if found[1].upper() in known else None
    named = [letter.upper() for letter, said in options if folded(said) == folded(text)]
    if len(named) == 1:
        return named[0]
    if found := _LETTER_FIRST.match(text):
        letter = (found[1] or found[2]).upper()
        return letter if letter in known else None
    said = {letter.upper() for letter in _NAMED_LETTER.findall(text) if letter.isupper()} & known
    return said.pop() if len(said) == 1 else None


def _choice(gold: str, answer: str, options: Sequence[tuple[str, str]]) -> Decision:
    wanted = letter_of(gold, options)
    if wanted is None:
        return Decision(False, "choice", "the gold answer is none of the options")
    found = letter_of(answer, options)
    right = found == wanted
    return Decision(right, "choice", "" if right else ("another option" if found else "no single option"), found)


def _collection(gold: str, answer: str, kind: str, checking: Checking) -> Decision:
    wanted, found = items(gold), items(answer)
    if wanted is None:
        wanted = Items((plain(gold),), "")
    if found is None:
        found = Items((plain(answer),), "")
    if kind == "set" and "(" in (wanted.bracket, found.bracket) and wanted.bracket != found.bracket:
        return Decision(False, "set", "a pair or interval is no set")
    if kind == "list" and "{" in (wanted.bracket, found.bracket) and wanted.bracket != found.bracket:
        return Decision(False, "list", "a set has no order")
    left = [_entry_key(one, checking) for one in wanted.entries]
    right = [_entry_key(one, checking) for one in found.entries]
    same = left == right if kind == "list" else set(left) == set(right)
    key = json.dumps(right if kind == "list" else sorted(set(right)), ensure_ascii=False)
    return Decision(same, kind, "" if same else "other entries", key)


def _entry_key(text: str, checking: Checking) -> str:
    """One text for equal entries. Zeros in front make an id or a bit string, not a number."""
    text = plain(text)
    if not re.match(r"[+-]?0\d", text) and (found := number(text, fractions=True)) is not None:
        return found.key
    return re.sub(r"\s*,\s*", ",", folded(text, case_sensitive=checking.case_sensitive))


_DATE_OR_TIME = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{1,2}:\d{2}(?::\d{2})?")
_WORDS = re.compile(r"[^\W\d_][^\d\\^=+*/<>|_{}()\[\]]+")
_CODE = re.compile(r"0\d+")
_MATHS_WORDS = {"pi", "inf", "infinity", "infty"}


def _expression(gold: str, answer: str, checking: Checking, prover: Prover | None, depth: int = 0) -> Decision:
    mine = "".join(plain(answer).split())
    if mine and mine == "".join(plain(gold).split()):
        return Decision(True, "exact", "", folded(answer))
    key = folded(answer)
    wanted_text, found_text = _value_of(gold), _value_of(answer)
    for one in (wanted_text, found_text):
        said = plain(one)
        if _DATE_OR_TIME.fullmatch(said) or _CODE.fullmatch(said):
            return Decision(False, "string", "dates, times and codes are equal as text only", key)
        if _WORDS.fullmatch(said) and said.casefold() not in _MATHS_WORDS:
            return Decision(folded(gold) == key, "string", "" if folded(gold) == key else "another text", key)
    if re.search(r"\bor\b", answer) and not re.search(r"\bor\b", gold):
        return Decision(False, "hedge", "more than one answer", key)
    wanted = number(wanted_text, fractions=True)
    if wanted is not None:
        found = number(found_text, fractions=True)
        if found is not None:
            return _same_number(wanted, found, "number", checking)
        if checking.literal:
            return Decision(False, "number", "no literal number", key)
    if ("%" in gold) != ("%" in answer):
        return Decision(False, "number", "per cent on one side only", key)
    shaped = _shape(gold, answer, checking, prover, depth)
    if shaped is not None:
        return replace(shaped, answer=key)
    if prover is None:
        return Decision(False, "exact", "another text, and no symbolic comparer was asked", key)
    return _proved(gold, answer, prover)


def _shape(gold: str, answer: str, checking: Checking, prover: Prover | None, depth: int) -> Decision | None:
    """Lists, sets, pairs: brackets and counts must agree, then entry by entry. None where neither side is one."""
    wanted, found = items(gold), items(answer)
    if (wanted is None and found is None) or depth > 3:
        return None
    if wanted is None or found is None or len(wanted.entries) != len(found.entries):
        one = wanted or found
        if one is not None and len(one.entries) == 1 and one.bracket == "(":
            return None  # (x+1) is an expression in brackets
        return Decision(False, "shape", "another number of entries")
    if len(wanted.entries) == 1 and wanted.bracket == found.bracket == "(":
        return None
    brackets = {wanted.bracket, found.bracket}
    # 1, 2 may stand for {1, 2}; and (1, 2) or [1, 2] may lack their brackets.
    if len(brackets) > 1 and "" not in brackets:
        return Decision(False, "shape", "a set, a pair and a list are different things")
    ordered = wanted.bracket in ("(", "[") or found.bracket in ("(", "[") or (" " in plain(gold) and "," not in gold)
    left = list(found.entries)
    for entry in wanted.entries:
        candidates = left[:1] if ordered else left
        for other in candidates:
            decision = _expression(entry, other, checking, prover, depth + 1)
            if decision.right:
                left.remove(other)
                break
            if failed(decision.by):
                return decision
        else:
            return Decision(False, "shape", "other entries")
    return Decision(True, "shape")


def _proved(gold: str, answer: str, prover: Prover) -> Decision:
    said = prover(gold, answer)
    key = folded(answer)
    if isinstance(said, str):
        return Decision(False, f"math-verify: {said}", "no symbolic comparison could be made", key)
    return Decision(said, "math-verify", "" if said else "another value", key)
