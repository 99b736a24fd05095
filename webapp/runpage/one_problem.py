"""One problem over a run's evaluations: how its samples are spread over answers and over distinct right solutions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from webapp.core.counts import counted
from webapp.evals.models import Evaluation
from webapp.evals.selectors import results_of
from webapp.runpage.specs import Spec

T = TypeVar("T")
MOST_COLUMNS = 24  # evaluations that are drawn, the first and the last always
MOST_ANSWERS = 6  # answers with a colour of their own
MOST_CURVES = 5
MOST_TICKS = 8
REST = "__other__"
NAMES = {REST: "others", "__none__": "no answer", "truncated": "cut off"}


@dataclass(frozen=True)
class Moment:
    """What one evaluation found of the problem: `answers` are [key, count, correct], `forms` the counts of distinct right
    solutions, of `n` samples."""

    iteration: int
    n: int
    answers: Sequence[Sequence[Any]]
    forms: Sequence[int]


def history_of(uid: str, evaluations: Sequence[Evaluation]) -> list[Moment]:
    """The problem in at most `MOST_COLUMNS` of the evaluations, in their order."""
    chosen = _evenly(evaluations, MOST_COLUMNS)
    found = results_of(uid, chosen)
    return [Moment(e.iteration, *found[e.pk]) for e in chosen if e.pk in found]


def answer_mass(history: Sequence[Moment], about: str) -> Spec:
    """Share of the samples that gave each answer, stacked over the evaluations; the right ones are named so."""
    shares = [shares_of(moment.answers) for moment in history]
    right = {key for moment in history for key, _count, correct in moment.answers if correct}
    mass: dict[str, float] = {}
    for column in shares:
        for key, share in column.items():
            mass[key] = mass.get(key, 0.0) + share
    named = sorted((key for key in mass if key != REST), key=lambda key: (-mass[key], key))
    shown = named[:MOST_ANSWERS]
    if len(mass) > len(shown):
        shown = [*shown, REST]
    columns = list(range(len(history)))
    step = max(1, -(-len(columns) // MOST_TICKS))
    series = []
    for slot, key in enumerate(shown):
        if key == REST:
            y = [sum(v for k, v in column.items() if k not in shown[:-1]) for column in shares]
        else:
            y = [column.get(key, 0.0) for column in shares]
        notes = [f"{_name(key, key in right)} at iteration {moment.iteration}" for moment in history]
        slot_of: int | str = "base" if key == REST else slot
        series.append(
            {"key": key, "name": _name(key, key in right), "slot": slot_of, "x": columns, "y": y, "notes": notes}
        )
    return {
        "kind": "bars",
        "stacked": True,
        "title": "Answers of one problem",
        "note": _about(about, history),
        "x": {"title": "iteration", "ticks": [[i, str(history[i].iteration)] for i in columns[::step]]},
        "y": {"title": "share of samples", "rate": True},
        "series": series,
    }


def solution_ranks(history: Sequence[Moment], about: str) -> Spec:
    """Share of the samples that each distinct right solution got, by rank, at the start, now, and between."""
    solved = [moment for moment in history if sum(moment.forms)]
    series = []
    drawn = _evenly(solved, MOST_CURVES)
    for place, moment in enumerate(drawn):
        first = moment is history[0]
        y = [count / moment.n for count in sorted(moment.forms, reverse=True)]
        name = "start" if first else f"iteration {moment.iteration}"
        total = counted(sum(moment.forms), "right sample")
        series.append(
            {
                "key": f"at {moment.iteration}",
                "name": name,
                "slot": "base" if first else len(drawn) - 1 - place,
                "x": list(range(1, len(y) + 1)),
                "y": y,
                "notes": [f"{total} of {moment.n}, {counted(len(y), 'solution')}"] * len(y),
                "markers": True,
            }
        )
    return {
        "kind": "lines",
        "title": "Right solutions by rank",
        "note": _about(about, history),
        "x": {"title": "rank of the solution"},
        "y": {"title": "share of samples", "log": True},
        "series": series,
        **({} if series else {"empty": "No right sample of this problem in any evaluation."}),
    }


def shares_of(answers: Sequence[Sequence[Any]]) -> dict[str, float]:
    """{answer: its share of the samples}; an answer that was found right and wrong counts once."""
    total = sum(count for _key, count, _correct in answers)
    out: dict[str, float] = {}
    for key, count, _correct in answers:
        out[key] = out.get(key, 0.0) + count / total
    return out


def _about(text: str, history: Sequence[Moment]) -> str:
    most = max((moment.n for moment in history), default=0)
    return " · ".join(part for part in (text, f"{counted(most, 'sample')} each" if most else "") if part)


def _name(key: str, right: bool) -> str:
    text = NAMES.get(key, key)
    return f"{'✓ ' if right else ''}{text[:17] + '…' if len(text) > 18 else text}"


def _evenly(items: Sequence[T], most: int) -> list[T]:
    """At most so many of them, evenly chosen, with both ends."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]
