"""What the page's charts draw, as the specs that `static/js/charts.js` describes."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from webapp.evals import curves
from webapp.evals.models import Evaluation
from webapp.evals.selectors import effective_over_iterations as effective_progress
from webapp.evals.selectors import estimate_json, latest, passk_over_iterations, start_of
from webapp.methods.selectors import Chart, chart_by_slug, describe
from webapp.metrics.selectors import load_series
from webapp.runpage.axes import drawn_bands, drawn_marks, positions, x_json
from webapp.runs.models import EventRow, Run
from webapp.runs.selectors import events_of

HATCHED = "few problems"
SUFFIX_START = "_start"
Spec = dict[str, Any]


def metric_chart(run: Run, chart: Chart, *, axis: str, max_points: int) -> Spec:
    """A chart over iterations from the run's series, phases and marks behind it."""
    found = load_series(run, chart.series, axis=axis, max_points=max_points)
    series = []
    for data in found:
        metric = describe(data.key)
        start = data.key.endswith(SUFFIX_START)
        series.append({**data.json(), "name": metric.title, "slot": "base" if start else chart.series.index(data.key)})
    return {
        "kind": "lines",
        "title": chart.title,
        "note": "",
        "x": x_json(axis),
        "y": {"unit": chart.unit, "rate": chart.rate},
        "series": series,
        **_behind(run, axis),
    }


def single_metric(run: Run, key: str, *, axis: str, max_points: int) -> Spec:
    """One series on its own."""
    metric = describe(key)
    chart = Chart(key, metric.title, (key,), metric.help, metric.unit, metric.rate)
    return metric_chart(run, chart, axis=axis, max_points=max_points)


def _behind(run: Run, axis: str) -> Spec:
    return {"bands": drawn_bands(run, axis), "marks": drawn_marks(run, axis)}


# Evaluations


def pair_of(run: Run) -> tuple[Evaluation, Evaluation | None] | None:
    """(now, start) as the verdict takes them: the final evaluation where its start exists, else the newest
    validation.
    """
    fallback = None
    for name in ("test", "validation"):
        now = latest(run, name)
        if now is None:
            continue
        start = start_of(run, now)
        if start is not None:
            return now, start
        fallback = fallback or (now, None)
    return fallback


def passk_progress(run: Run, *, axis: str, max_points: int = 0) -> Spec:
    """pass@k over iterations with intervals, and chance at the largest k."""
    found = passk_over_iterations(run)
    if found is None:
        return _waiting("pass@k", "No evaluation yet.", axis)
    at = positions(run, axis, found.iterations)
    shown = [j for j, iteration in enumerate(found.iterations) if iteration in at]
    x = [at[found.iterations[j]] for j in shown]
    series = []
    for i, k in enumerate(found.ks):
        row = [found.estimates[i][j] for j in shown]
        line = {"key": f"pass@{k}", "name": f"pass@{k}", "slot": i, "markers": True}
        series.append({**line, "x": x, "iteration": [found.iterations[j] for j in shown], **_bounds(row)})
    if found.chance and x:
        k = found.ks[-1]
        ends = [x[0], x[-1]] if len(x) > 1 else x
        series.append(
            {"key": "chance", "name": f"chance@{k}", "slot": "chance", "x": ends, "y": [found.chance[-1]] * len(ends)}
        )
    return {
        "kind": "lines",
        "title": "pass@k",
        "note": _problems([e for row in found.estimates for e in row]),
        "x": x_json(axis),
        "y": {"rate": True},
        "series": series,
        **_behind(run, axis),
    }


def passk_curve(run: Run) -> Spec:
    """pass@k over k now and at the start, with intervals, and the chance line."""
    pair = pair_of(run)
    x = {"title": "k", "unit": ""}
    if pair is None:
        return {"kind": "passk", "x": x, "y": {"rate": True}, "series": [], "empty": "No evaluation yet."}
    now, start = pair
    series = []
    current = curves.curve(now)
    before = curves.curve(start) if start is not None else None
    if start is not None and before is not None:
        series.append({"key": "start", "name": "start", "slot": "base", "x": before.ks, **_bounds(before.estimates)})
    if start is None or start.pk != now.pk:
        name = f"iteration {now.iteration}"
        series.append({"key": "now", "name": name, "slot": 0, "x": current.ks, **_bounds(current.estimates)})
    if current.chance:
        series.append({"key": "chance", "name": "chance", "slot": "chance", "x": current.ks, "y": current.chance})
    for one in series:
        one["markers"] = one["key"] != "chance"
    set_ = now.set
    about = [f"{now.name} set", f"n = {now.samples}", f"T = {set_.sampler.get('temperature')}"]
    problems = _problems(current.estimates)
    return {
        "kind": "passk",
        "title": "pass@k over k",
        "note": ", ".join([*about, problems] if problems else about),
        "x": x,
        "y": {"rate": True},
        "series": series,
    }


def effective_chart(run: Run, *, axis: str, max_points: int = 0) -> Spec:
    """Effective number of correct trajectories over iterations, with that of the start on the same problems."""
    found = effective_progress(run)
    if not found:
        empty = "It needs problems with two correct samples at the start and at a later evaluation."
        return _waiting("Effective correct trajectories", empty, axis)
    at = positions(run, axis, [iteration for iteration, _ in found])
    shown = [(iteration, numbers) for iteration, numbers in found if iteration in at]
    x = [at[iteration] for iteration, _ in shown]
    notes = [f"{numbers.problems} problems with c ≥ 2 at both" for _, numbers in shown]
    common = {"x": x, "iteration": [iteration for iteration, _ in shown], "markers": True}
    now = {"key": "now", "name": "now", "slot": 0, **common, **_bounds([n.now for _, n in shown]), "notes": notes}
    start = {"key": "start", "name": "start, same problems", "slot": "base", **common}
    start |= {**_bounds([n.start for _, n in shown]), "notes": notes}
    newest = shown[-1][1] if shown else None
    return {
        "kind": "lines",
        "title": "Effective correct trajectories",
        "note": f"{newest.problems} problems solved at both" if newest else "",
        "x": x_json(axis),
        "y": {},
        "series": [start, now],
        **_behind(run, axis),
    }


def _waiting(title: str, empty: str, axis: str) -> Spec:
    return {"kind": "lines", "title": title, "x": x_json(axis), "y": {}, "series": [], "empty": empty}


def _bounds(estimates: Sequence[Any]) -> Spec:
    """Estimates as y, lo, hi, notes and flags of a series."""
    y: list[float | None] = []
    flags = []
    lo, hi, notes = [], [], []
    for index, estimate in enumerate(estimates):
        found = estimate_json(estimate) or {"value": None, "lo": None, "hi": None, "note": "k is larger than n"}
        y.append(found["value"])
        if "nonfinite" in found:
            flags.append([index, found["nonfinite"]])
        lo.append(found["lo"])
        hi.append(found["hi"])
        problems = f"{found['problems']} problems" if found.get("problems") else ""
        note = f"no interval: {found['note']}" if found["note"] and found["lo"] is None else found["note"]
        notes.append(", ".join(part for part in (problems, note) if part))
    hatched = any(estimate is not None and estimate.note == HATCHED for estimate in estimates)
    return {"y": y, "lo": lo, "hi": hi, "notes": notes, "nonfinite": flags, "hatched": hatched}


def _problems(estimates: Sequence[Any]) -> str:
    counts = {e.problems for e in estimates if e is not None}
    notes = {e.note for e in estimates if e is not None and e.note == HATCHED}
    text = f"{max(counts)} problems" if counts else ""
    return f"{text}, few: intervals are rough" if notes else text


# Histograms, heat maps, scatters, tables and texts that a trainer sent


def figure_spec(run: Run, kind: str, key: str, iteration: int | None) -> Spec | None:
    """The newest figure of that kind and key up to the iteration (of all, without one); None when there is none."""
    rows = events_of(run, kind, key=key)
    if iteration is not None:
        rows = rows.filter(iteration__lte=iteration)
    row = rows.order_by("-iteration", "-attempt", "-pk").first()
    return _figure(row) if row is not None else None


def _figure(row: EventRow) -> Spec:
    p = row.payload
    common = {"title": row.key, "note": f"iteration {row.iteration}"}
    if row.kind == "histogram":
        edges = p["edges"]
        centres = [(a + b) / 2 for a, b in pairwise(edges)]
        series = [{"key": row.key, "name": row.key, "slot": 0, "x": centres, "y": p["counts"]}]
        return {"kind": "bars", **common, "x": {"title": "value"}, "y": {"title": "count"}, "series": series}
    if row.kind == "heatmap":
        values = [v for line in p["z"] for v in line if v is not None and math.isfinite(v)]
        limits = {"zmin": min(values, default=0), "zmax": max(values, default=1)}
        return {"kind": "heatmap", **common, "x": {"labels": p["x"]}, "y": {"labels": p["y"]}, "z": p["z"], **limits}
    if row.kind == "scatter":
        series = [{"key": row.key, "name": row.key, "slot": 0, "x": p["x"], "y": p["y"], "notes": p["labels"] or None}]
        return {"kind": "scatter", **common, "x": {}, "y": {}, "series": series}
    if row.kind == "table":
        return {"kind": "table", **common, "columns": p["columns"], "rows": p["rows"]}
    return {"kind": "text", **common, "text": p["text"]}


def named_chart(run: Run, slug: str, *, axis: str, max_points: int) -> Spec | None:
    """The chart of that slug, or None."""
    if slug == "passk-progress":
        return passk_progress(run, axis=axis)
    if slug == "passk-curve":
        return passk_curve(run)
    if slug == "effective":
        return effective_chart(run, axis=axis)
    chart = chart_by_slug(run.methods, slug)
    return metric_chart(run, chart, axis=axis, max_points=max_points) if chart else None
