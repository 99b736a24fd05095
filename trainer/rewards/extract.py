"""Where in a completion the answer stands. Pure text, never raises."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_TAG = re.compile(r"<answer>(.*?)</answer>", re.S | re.I)
_LEAD = re.compile(
    r"^.*?\b(?:final answer|answer|result)\b\s*(?:is|are|=|:)*\s*(?=\S)|^(?:therefore|thus|so|hence)[,:]?\s+",
    re.I | re.S,
)
_HASHES = re.compile(r"####\s*([^\n]*)")


@dataclass(frozen=True)
class Extracted:
    """The answer's text and which place it was taken from; ``several`` where one place gives different answers."""

    text: str
    place: str
    several: bool = False


def extract(completion: str, chain: Sequence[str] = ("tag", "boxed", "last_line")) -> Extracted | None:
    """The first place of ``chain`` that holds an answer; None where none does. What is thought aloud is left out."""
    text = _spoken(completion)
    for place in chain:
        found = _PLACES[place](text)
        if found is not None:
            return found
    return None


def _spoken(text: str) -> str:
    """What follows the thinking; an unfinished thought says nothing."""
    if "</think>" in text:
        return text.rpartition("</think>")[2]
    return text.partition("<think>")[0]


def _tag(text: str) -> Extracted | None:
    found = _TAG.findall(text)
    return Extracted(found[-1].strip(), "tag") if found else None


def boxes(text: str) -> list[tuple[int, str]]:
    """(position, content) of every complete ``\\boxed{…}`` (or ``\\fbox``), braces balanced, outermost ones only."""
    out: list[tuple[int, str]] = []
    at = 0
    while True:
        starts = [p for mark in ("\\boxed", "\\fbox") if (p := text.find(mark, at)) >= 0]
        if not starts:
            return out
        start = min(starts)
        brace = text.find("{", start)
        if brace < 0 or text[start:brace].strip() not in ("\\boxed", "\\fbox"):
            # ``\boxed 5`` holds one token.
            word = re.match(r"\\(?:boxed|fbox)\s+([^\s$]+)", text[start:])
            if word:
                out.append((start, word.group(1)))
            at = start + 5
            continue
        depth = 0
        for position in range(brace, len(text)):
            depth += (text[position] == "{") - (text[position] == "}")
            if depth == 0:
                out.append((start, text[brace + 1 : position].strip()))
                at = position
                break
        else:
            return out


def last_boxed(text: str) -> str | None:
    """Content of the last box."""
    found = boxes(text)
    return found[-1][1] if found else None


def _boxed(text: str) -> Extracted | None:
    found = boxes(text)
    if not found:
        return None
    line_start = text.rfind("\n", 0, found[-1][0]) + 1
    # Boxes of earlier steps are steps; two on the last such line are a hedge.
    same_line = {content for position, content in found if position >= line_start}
    return Extracted(found[-1][1], "boxed", several=len(same_line) > 1)


def after_hashes(text: str) -> str | None:
    """Text after the last ``####`` of its line."""
    found = _HASHES.findall(text)
    return found[-1].strip() if found else None


def _hashes(text: str) -> Extracted | None:
    found = after_hashes(text)
    return Extracted(found, "hashes") if found else None


def _last_line(text: str) -> Extracted | None:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    led = _LEAD.sub("", lines[-1], count=1).strip()
    return Extracted(led or lines[-1], "last_line")


def _whole(text: str) -> Extracted | None:
    return Extracted(text.strip(), "whole") if text.strip() else None


_PLACES = {"tag": _tag, "boxed": _boxed, "hashes": _hashes, "last_line": _last_line, "whole": _whole}
