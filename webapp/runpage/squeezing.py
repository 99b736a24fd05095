"""The squeezing tab: how success and answers are spread over problems, at the start and now."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from webapp.core.counts import counted
from webapp.evals.changes import Changes, changes_between
from webapp.evals.curves import shared
from webapp.evals.models import Evaluation
from webapp.evals.selectors import evaluations_of, latest, names_of, problem_rows, start_of
from webapp.runpage.one_problem import answer_mass, history_of, shares_of, solution_ranks
from webapp.runpage.specs import Spec, curves_over_k, pair_of
from webapp.runs.models import Run

BINS = 16


@dataclass(frozen=True)
class View:
    """What the tab shows; `reason` says why there is nothing. `choices` are the evaluations on one set, of which `start` and
    `now` are compared; `rows` are the problems, the chosen one is `problem`."""

    reason: str = ""
    names: Sequence[str] = ()
    now: Evaluation | None = None
    start: Evaluation | None = None
    choices: Sequence[Evaluation] = ()
    curve: Spec | None = None
    histogram: Spec | None = None
    changes: Changes | None = None
    texts: dict[str, str] = field(default_factory=dict)
    rows: Sequence[dict[str, Any]] = ()
    problem: dict[str, Any] | None = None
    answers: Spec | None = None
    ranks: Spec | None = None

    @property
    def significant(self) -> list[tuple[Any, str]]:
        return [
            (change, self.texts.get(change.uid, change.uid))
            for change in (self.changes.significant if self.changes else ())
        ]


def view_of(run: Run, *, problem: str = "", name: str = "", first: str = "", last: str = "") -> View:
    """The tab for a query string: `first` and `last` are iterations of the evaluations called `name` that are compared, by
    default the start and the newest. Without a chosen problem, the one whose answers changed most is open."""
    names = [one for one in ("validation", "test") if one in names_of(run)]
    pair = _pair(run, name) if name in names else pair_of(run)
    if pair is None:
        return View("There is no evaluation yet. The first one comes before the first iteration.")
    now, start = pair
    choices = comparable(run, now, start)
    now = _at(choices, last) or now
    start = _at(choices, first) or start
    if start is None or start.pk == now.pk:
        found = len(choices)
        reason = "There is only one evaluation so far; the next one shows what has changed."
        if found > 1:
            reason = f"Both ends are the evaluation at iteration {now.iteration}. Choose two different ones."
        return View(reason, names=names, now=now, start=start, choices=choices)
    rows = problem_rows(now, start)
    changes = changes_between(start, now)
    before = {row["uid"]: row for row in problem_rows(start)}
    known = [row for row in rows if row["uid"] in before]
    chosen = next((row for row in known if row["uid"] == problem), None)
    if chosen is None and known:
        chosen = max(known, key=lambda row: _moved(before[row["uid"]]["answers"], row["answers"]))
    history = history_of(chosen["uid"], choices) if chosen else []
    about = chosen["text"] if chosen else ""
    return View(
        names=names,
        now=now,
        start=start,
        choices=choices,
        curve=curves_over_k(now, start, bound=True),
        histogram=success_histogram(now, start),
        changes=changes,
        texts={row["uid"]: row["text"] for row in rows},
        rows=sorted(known, key=lambda row: (row["c"] / row["n"] - row["start_c"] / row["start_n"], row["uid"])),
        problem=chosen,
        answers=answer_mass(history, about) if chosen else None,
        ranks=solution_ranks(history, about) if chosen else None,
    )


def comparable(run: Run, now: Evaluation, start: Evaluation | None) -> list[Evaluation]:
    """The evaluations that may stand at either end, by iteration: this run's of the same name, policy and set, and the
    start, wherever that was measured."""
    same = [e for e in evaluations_of(run, now.name) if (e.set_id, e.policy) == (now.set_id, now.policy)]
    return [start, *same] if start is not None and start.pk not in {e.pk for e in same} else same


def _pair(run: Run, name: str) -> tuple[Evaluation, Evaluation | None] | None:
    now = latest(run, name)
    return None if now is None else (now, start_of(run, now))


def _at(choices: Sequence[Evaluation], iteration: str) -> Evaluation | None:
    return next((e for e in choices if str(e.iteration) == iteration), None)


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


def _moved(before: Sequence[Sequence[Any]], after: Sequence[Sequence[Any]]) -> float:
    """Total variation distance between the two distributions over answers."""
    a, b = shares_of(before), shares_of(after)
    return sum(abs(a.get(key, 0.0) - b.get(key, 0.0)) for key in {*a, *b}) / 2
