"""Scores of reasoning-gym's own checkers, made sound: 0 or 1, never an exception, never for nan or infinity."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer.rewards.worker import RAISED, CheckerLost, Worker

RIGHT = 0.99
"""From this score on an answer is right. Checkers give part of it to text that only contains the answer, and some give a
few hundredths to anything."""
LONGEST = 20_000
_NOT_FINITE = re.compile(r"(?<![a-z])(?:nan|inf(?:inity)?)j?(?![a-z])", re.I)
_EXPONENT = re.compile(r"(?<![\d_.])\d[\d_]*+(?:\.[\d_]*+)?[eE][+-]?\d+")


def is_finite(answer: str, gold: str | None) -> bool:
    """Whether a text names no nan and no infinity, in letters or as a number too large, unless the gold answer does."""
    words = {found.lower() for found in _NOT_FINITE.findall(answer)}
    if words - {found.lower() for found in _NOT_FINITE.findall(gold or "")}:
        return False
    return not any(math.isinf(float(found.replace("_", ""))) for found in _EXPONENT.findall(answer))


@dataclass(frozen=True)
class Source:
    """Which generator a problem comes from, and how it was set; that of an imported problem is not known."""

    name: str
    level: int | None = None
    settings: str = "{}"


class GymScorer:
    """Callable (source, entry, answer) → (right, by). ``by`` says why where the checker gave no score: it raised, ran out
    of time, or crashed. An answer may take ``seconds`` of CPU time."""

    def __init__(self, *, seconds: float = 5.0) -> None:
        self._worker = Worker("trainer.rewards.gym_worker", seconds=seconds)
        self._cached = functools.lru_cache(maxsize=1 << 14)(self._ask)

    def __call__(self, source: Source, entry: Mapping[str, Any], answer: str) -> tuple[bool, str]:
        if len(answer) > LONGEST or not is_finite(answer, entry.get("answer")):
            return False, "reasoning-gym: no finite answer" if len(answer) <= LONGEST else "reasoning-gym: too long"
        return self._cached(source, json.dumps(entry, sort_keys=True), answer)

    def close(self) -> None:
        """Ends the process."""
        self._worker.close()

    def _ask(self, source: Source, entry: str, answer: str) -> tuple[bool, str]:
        request = {
            "name": source.name, "level": source.level, "settings": json.loads(source.settings),
            "entry": json.loads(entry), "answer": answer,
        }  # fmt: skip
        try:
            said = self._worker.ask(request)
        except CheckerLost as error:
            return False, f"reasoning-gym: {error}"
        if isinstance(said, dict):
            return False, f"reasoning-gym: {RAISED}"
        return bool(said >= RIGHT), "reasoning-gym"
