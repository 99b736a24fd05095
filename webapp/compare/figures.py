"""What the page's charts draw, as the specs that `static/js/charts.js` describes."""

from collections.abc import Sequence
from typing import Any

from webapp.compare.query import Query
from webapp.compare.selectors import Comparison, Line, Value, colours, selected
from webapp.core.counts import counted
from webapp.evals import curves
from webapp.methods.selectors import describe
from webapp.metrics.axes import AXES
from webapp.metrics.models import Series
from webapp.metrics.selectors import load_series
from webapp.projects.models import Project
from webapp.runs.models import Run

Spec = dict[str, Any]
FEW = "few problems"
MOST_IN_LEGEND = 10
"""With more, the page's own list of runs is the key of the colours."""
USUAL = ("reward", "eval/accuracy", "entropy", "completions/mean_length")


def passk_spec(comparison: Comparison) -> Spec:
    """pass@k over k: bases grey and dashed, chance dotted, intervals as bands; hatched where the problems are few."""
    series = [_line(line) for line in comparison.all_lines]
    for one in comparison.drawn_sets:
        ks = max((line.ks for line in comparison.all_lines if line.first.set_id == one.pk), key=len, default=[])  # type: ignore[attr-defined]
        chance = curves.chance_curve(one, ks)
        if chance and ks:
            name = "chance" if not comparison.mixed else f"chance, {one.task}"
            series.append(
                {"key": f"chance-{one.pk}", "name": name, "slot": "chance", "x": ks, "y": chance, "markers": False}
            )
    notes = []
    if series and comparison.by == "seeds" and any(line.seeds > 1 for line in comparison.lines):
        notes.append("bands of several seeds: t over seeds; of one run: over problems")
    if any(one.get("hatched") for one in series):
        notes.append("hatched: few problems")
    if comparison.mixed:
        notes.append("different evaluation sets on one axis")
    return {
        "kind": "passk",
        "title": "pass@k",
        "note": " · ".join(notes),
        "legend": len(series) <= MOST_IN_LEGEND,
        "x": {"title": "k", "unit": "samples"},
        "y": {"title": "pass@k", "rate": True},
        "series": series,
        "empty": "" if series else "Choose runs with an evaluation.",
    }


def _line(line: Line) -> Spec:
    values = [line.at(k) for k in line.ks]
    return {
        "key": line.key,
        "name": line.name,
        "slot": line.slot,
        "x": line.ks,
        "y": [value.value for value in values],
        "lo": [value.lo for value in values],
        "hi": [value.hi for value in values],
        "notes": [_note(line, value) for value in values],
        "hatched": any(value.note == FEW for value in values),
        "markers": True,
    }


def _note(line: Line, value: Value) -> str:
    unit = counted(line.seeds, "seed") if line.seeds > 1 else counted(line.problems, "problem")
    return f"{unit}, {value.note}" if value.note else unit


def metric_spec(project: Project, query: Query, key: str, *, max_points: int) -> Spec:
    """One metric of all selected runs on the address's axis. Runs of one configuration share its colour."""
    metric = describe(key)
    runs = selected(project, query)
    _, slots = colours(runs, query)
    series = []
    for run in runs:
        for data in load_series(run, [key], axis=query.axis, max_points=max_points):
            series.append({**data.json(), "key": run.pk, "name": run.name, "slot": slots[run.pk]})
    title, unit = AXES[query.axis]
    return {
        "kind": "lines",
        "title": metric.title,
        "note": "",
        "legend": False,
        "x": {"axis": query.axis, "title": title, "unit": unit},
        "y": {"unit": metric.unit, "rate": metric.rate},
        "series": series,
        "empty": "" if series else "None of these runs has logged it.",
    }


def keys_in(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """(key, title) of every metric that one of the runs has logged, the usual ones first."""
    keys = Series.objects.filter(run__in=runs, last_iteration__isnull=False).values_list("key", flat=True).distinct()
    order = {key: position for position, key in enumerate(USUAL)}
    return [(key, describe(key).title) for key in sorted(keys, key=lambda k: (order.get(k, len(order)), k))]
