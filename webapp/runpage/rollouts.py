"""The rollouts tab: one iteration's prompts, and the completions that a filter leaves."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from webapp.rollouts.models import RolloutGroup
from webapp.rollouts.selectors import PartMissing, groups_at, history_of, iterations_of, rows_of
from webapp.runs.models import Run

MOST_CARDS = 64
LONGEST = 8
ENDS = {"eos": "ended by itself", "stop": "ended by a stop string", "length": "hit the token limit"}

Rows = list[dict[str, Any]]


def _rarest(rows: Rows) -> Rows:
    """The correct ones, those first whose canonical form is rarest in its group."""
    right = [row for row in rows if row["correct"]]
    times = Counter((row["uid"], row["canonical"]) for row in right)
    return sorted(right, key=lambda row: times[row["uid"], row["canonical"]])


# name -> (label, what it leaves)
FILTERS: dict[str, tuple[str, Callable[[Rows], Rows]]] = {
    "": ("All", lambda rows: rows),
    "right": ("Right", lambda rows: [row for row in rows if row["correct"]]),
    "wrong": ("Wrong", lambda rows: [row for row in rows if not row["correct"]]),
    "rewarded": ("Wrong but rewarded", lambda rows: [r for r in rows if not r["correct"] and (r["reward"] or 0) > 0]),
    "truncated": ("Truncated", lambda rows: [row for row in rows if row["end"] == "length"]),
    "longest": ("Longest", lambda rows: sorted(rows, key=lambda row: -row["tokens"])[:LONGEST]),
    "rarest": ("Rarest correct", _rarest),
}


@dataclass(frozen=True)
class Browser:
    """What the tab shows. `chosen` is the opened prompt, None where the filter looks at the whole iteration."""

    iterations: list[int]
    iteration: int | None = None
    groups: Sequence[RolloutGroup] = ()
    chosen: RolloutGroup | None = None
    filter: str = ""
    cards: Rows = field(default_factory=list)
    total: int = 0
    history: Sequence[RolloutGroup] = ()
    fault: str = ""

    @property
    def more(self) -> int:
        return self.total - len(self.cards)


def browse(run: Run, *, iteration: str = "", prompt: str = "", only: str = "") -> Browser:
    """The tab for a query string; an iteration without rollouts leads to the nearest that has some."""
    iterations = iterations_of(run)
    if not iterations:
        return Browser([])
    wanted = int(iteration[:9]) if iteration.isascii() and iteration.isdigit() else iterations[-1]
    at = min(iterations, key=lambda found: (abs(found - wanted), -found))
    only = only if only in FILTERS else ""
    groups = list(groups_at(run, at))
    chosen = next((group for group in groups if group.uid == prompt), None)
    if chosen is None and not only and prompt != "all":
        chosen = groups[0] if groups else None
    fault = ""
    rows: Rows = []
    try:
        for group in [chosen] if chosen else groups:
            rows += [_card(row, group) for row in rows_of(group)]
    except PartMissing as error:
        fault = str(error)
    left = FILTERS[only][1](rows)
    history = list(history_of(run, chosen.uid)) if chosen else []
    return Browser(iterations, at, groups, chosen, only, left[:MOST_CARDS], len(left), history, fault)


def _card(row: dict[str, Any], group: RolloutGroup) -> dict[str, Any]:
    return {
        **row,
        "prompt": group.text,
        "solution": group.answer,
        "parts": sorted(json.loads(row.get("rewards") or "{}").items()),
        "advantage": None if row.get("advantage") == "nan" else row.get("advantage"),
        "end_text": ENDS.get(row.get("end") or "", row.get("end") or ""),
    }
