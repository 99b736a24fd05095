"""What the page's charts draw, as the specs that `static/js/charts.js` describes."""

from collections.abc import Sequence
from typing import Any

from webapp.core.counts import counted
from webapp.evals import curves
from webapp.evals.models import Evaluation
from webapp.evals.selectors import effective_over_iterations as effective_progress
from webapp.evals.selectors import estimate_json, latest, passk_over_iterations, start_of
from webapp.methods.selectors import Chart, chart_by_slug, describe
from webapp.metrics.axes import Scale
from webapp.metrics.selectors import load_series
from webapp.runpage.axes import behind, x_json
from webapp.runs.models import Run

HATCHED = "few problems"
SUFFIX_START = "_start"
K_AXIS = {"title": "k", "unit": ""}
Spec = dict[str, Any]


def metric_chart(run: Run, chart: Chart, *, axis: str, max_points: int) -> Spec:
    """A chart over iterations from the run's series, phases and marks behind it."""
    found = load_series(run, chart.series, axis=axis, max_points=max_points)
    scale = Scale(run.pk, axis)
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
        **behind(run, scale),
    }


def single_metric(run: Run, key: str, *, axis: str, max_points: int) -> Spec:
    """One series on its own."""
    metric = describe(key)
    chart = Chart(key, metric.title, (key,), metric.help, metric.unit, metric.rate)
    return metric_chart(run, chart, axis=axis, max_points=max_points)


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
    scale = Scale(run.pk, axis)
    at = scale.all(found.iterations)
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
        **behind(run, scale),
    }


def passk_curve(run: Run) -> Spec:
    """pass@k over k now and at the start, with intervals, and the chance line."""
    pair = pair_of(run)
    if pair is None:
        return {"kind": "passk", "x": K_AXIS, "y": {"rate": True}, "series": [], "empty": "No evaluation yet."}
    return curves_over_k(*pair)


def curves_over_k(now: Evaluation, start: Evaluation | None, *, bound: bool = False) -> Spec:
    """pass@k over k of two evaluations with intervals, and the chance line. `bound` adds what it can reach at most at this
    pass@1: the curve of problems that are all equally hard.
    """
    series = []
    current = curves.curve(now)
    before = curves.curve(start) if start is not None else None
    if start is not None and before is not None:
        series.append({"key": "start", "name": "start", "slot": "base", "x": before.ks, **_bounds(before.estimates)})
    if start is None or start.pk != now.pk:
        name = f"iteration {now.iteration}"
        series.append({"key": "now", "name": name, "slot": 0, "x": current.ks, **_bounds(current.estimates)})
    if bound and current.estimates:
        most = curves.bound(current)
        series.append({"key": "bound", "name": "bound", "slot": 5, "dash": "dot", "x": current.ks, "y": most})
    if current.chance:
        series.append({"key": "chance", "name": "chance", "slot": "chance", "x": current.ks, "y": current.chance})
    for one in series:
        one["markers"] = one["key"] not in ("chance", "bound")
    set_ = now.set
    about = [f"{now.name} set", f"n = {now.samples}", f"T = {set_.sampler.get('temperature')}"]
    problems = _problems(current.estimates)
    return {
        "kind": "passk",
        "title": "pass@k over k",
        "note": ", ".join([*about, problems] if problems else about),
        "x": K_AXIS,
        "y": {"rate": True},
        "series": series,
    }


def effective_chart(run: Run, *, axis: str, max_points: int = 0) -> Spec:
    """Effective number of correct trajectories over iterations, with that of the start on the same problems."""
    found = effective_progress(run)
    if not found:
        empty = "It needs problems with two correct samples at the start and at a later evaluation."
        return _waiting("Effective correct trajectories", empty, axis)
    scale = Scale(run.pk, axis)
    at = scale.all(iteration for iteration, _ in found)
    shown = [(iteration, numbers) for iteration, numbers in found if iteration in at]
    x = [at[iteration] for iteration, _ in shown]
    notes = [f"{counted(numbers.problems, 'problem')} with c ≥ 2 at both" for _, numbers in shown]
    common = {"x": x, "iteration": [iteration for iteration, _ in shown], "markers": True}
    now = {"key": "now", "name": "now", "slot": 0, **common, **_bounds([n.now for _, n in shown]), "notes": notes}
    start = {"key": "start", "name": "start, same problems", "slot": "base", **common}
    start |= {**_bounds([n.start for _, n in shown]), "notes": notes}
    newest = shown[-1][1] if shown else None
    return {
        "kind": "lines",
        "title": "Effective correct trajectories",
        "note": f"{counted(newest.problems, 'problem')} solved at both" if newest else "",
        "x": x_json(axis),
        "y": {},
        "series": [start, now],
        **behind(run, scale),
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
        problems = counted(found["problems"], "problem") if found.get("problems") else ""
        note = f"no interval: {found['note']}" if found["note"] and found["lo"] is None else found["note"]
        notes.append(", ".join(part for part in (problems, note) if part))
    hatched = any(estimate is not None and estimate.note == HATCHED for estimate in estimates)
    return {"y": y, "lo": lo, "hi": hi, "notes": notes, "nonfinite": flags, "hatched": hatched}


def _problems(estimates: Sequence[Any]) -> str:
    counts = {e.problems for e in estimates if e is not None}
    notes = {e.note for e in estimates if e is not None and e.note == HATCHED}
    text = counted(max(counts), "problem") if counts else ""
    return f"{text}, few: intervals are rough" if notes else text


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
