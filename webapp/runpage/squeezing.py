"""The squeezing tab: how success and answers are spread over problems, at the start and now."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from webapp.core.counts import counted
from webapp.evals.changes import Changes, changes_between
from webapp.evals.curves import shared
from webapp.evals.models import Evaluation
from webapp.evals.selectors import problem_rows
from webapp.runpage.specs import Spec, pair_of
from webapp.runs.models import Run

BINS = 16
MOST_ANSWERS = 12
NAMES = {"__other__": "others", "__none__": "no answer"}


@dataclass(frozen=True)
class View:
    """What the tab shows; `reason` says why there is nothing. `rows` are the problems, the chosen one is `problem`."""

    reason: str = ""
    now: Evaluation | None = None
    start: Evaluation | None = None
    histogram: Spec | None = None
    changes: Changes | None = None
    texts: dict[str, str] = field(default_factory=dict)
    rows: Sequence[dict[str, Any]] = ()
    problem: dict[str, Any] | None = None
    answers: Spec | None = None

    @property
    def significant(self) -> list[tuple[Any, str]]:
        return [
            (change, self.texts.get(change.uid, change.uid))
            for change in (self.changes.significant if self.changes else ())
        ]


def view_of(run: Run, *, problem: str = "") -> View:
    """The tab for a query string; without a chosen problem, the one whose answers changed most is open."""
    pair = pair_of(run)
    if pair is None:
        return View("There is no evaluation yet. The first one comes before the first iteration.")
    now, start = pair
    if start is None or start.pk == now.pk:
        return View("There is only one evaluation so far; the next one shows what has changed.")
    rows = problem_rows(now, start)
    changes = changes_between(start, now)
    before = {row["uid"]: row for row in problem_rows(start)}
    known = [row for row in rows if row["uid"] in before]
    chosen = next((row for row in known if row["uid"] == problem), None)
    if chosen is None and known:
        chosen = max(known, key=lambda row: _moved(before[row["uid"]]["answers"], row["answers"]))
    return View(
        now=now,
        start=start,
        histogram=success_histogram(now, start),
        changes=changes,
        texts={row["uid"]: row["text"] for row in rows},
        rows=sorted(known, key=lambda row: (row["c"] / row["n"] - row["start_c"] / row["start_n"], row["uid"])),
        problem=chosen,
        answers=_answers_of(chosen, before[chosen["uid"]]) if chosen else None,
    )


def success_histogram(now: Evaluation, start: Evaluation) -> Spec:
    """Number of problems by their share of correct samples: now upwards, the start downwards, on shared problems."""
    uids = shared(now, start)
    edges = [i / BINS for i in range(BINS + 1)]
    centres = [(a + b) / 2 for a, b in pairwise(edges)]

    def counts(evaluation: Evaluation) -> list[int]:
        out = [0] * BINS
        for uid in uids:
            found = evaluation.by_uid[uid]
            out[min(BINS - 1, int(BINS * found["c"] / found["n"]))] += 1
        return out

    notes = [f"c/n from {a:.3g} to {b:.3g}" for a, b in pairwise(edges)]
    up, down = counts(now), [-count for count in counts(start)]
    return {
        "kind": "bars",
        "mirror": True,
        "title": "Success by problem",
        "note": f"{counted(len(uids), 'problem')}; above now, below the start",
        "x": {"title": "Share of correct samples"},
        "y": {"title": "problems"},
        "series": [
            {"key": "now", "name": f"iteration {now.iteration}", "slot": 0, "x": centres, "y": up, "notes": notes},
            {"key": "start", "name": "start", "slot": "base", "x": centres, "y": down, "notes": notes},
        ],
    }


def answer_mass(before: Sequence[Sequence[Any]], after: Sequence[Sequence[Any]]) -> Spec:
    """Share of the samples that gave each answer, at the start and now; the right ones are named so."""
    shares = [_shares(before), _shares(after)]
    right = {key for answers in (before, after) for key, _count, correct in answers if correct}
    keys = sorted({*shares[0], *shares[1]}, key=lambda key: -(shares[0].get(key, 0.0) + shares[1].get(key, 0.0)))
    shown = keys[:MOST_ANSWERS]
    names = [_name(key, key in right) for key in shown]
    notes = ["right" if key in right else "wrong" for key in shown]
    columns = list(range(len(shown)))
    common = {"x": columns, "notes": notes}
    return {
        "kind": "bars",
        "title": "Answers",
        "note": f"the {len(shown)} most frequent of {counted(len(keys), 'answer')}" if len(keys) > len(shown) else "",
        "x": {"title": "", "ticks": [[i, name] for i, name in zip(columns, names, strict=True)]},
        "y": {"title": "share of samples", "rate": True},
        "series": [
            {
                "key": "start",
                "name": "start",
                "slot": "base",
                "x": columns,
                "y": _row(shown, shares[0]),
                "notes": notes,
            },
            {"key": "now", "name": "now", "slot": 0, **common, "y": _row(shown, shares[1])},
        ],
    }


def _answers_of(problem: dict[str, Any], before: dict[str, Any]) -> Spec:
    spec = answer_mass(before["answers"], problem["answers"])
    return spec | {"note": " · ".join(part for part in (problem["text"], spec["note"]) if part)}


def _shares(answers: Sequence[Sequence[Any]]) -> dict[str, float]:
    total = sum(count for _key, count, _correct in answers)
    return {key: count / total for key, count, _correct in answers} if total else {}


def _row(keys: Sequence[str], shares: dict[str, float]) -> list[float]:
    return [shares.get(key, 0.0) for key in keys]


def _name(key: str, right: bool) -> str:
    text = NAMES.get(key, key)
    return f"{'✓ ' if right else ''}{text[:17] + '…' if len(text) > 18 else text}"


def _moved(before: Sequence[Sequence[Any]], after: Sequence[Sequence[Any]]) -> float:
    """Total variation distance between the two distributions over answers."""
    a, b = _shares(before), _shares(after)
    return sum(abs(a.get(key, 0.0) - b.get(key, 0.0)) for key in {*a, *b}) / 2
