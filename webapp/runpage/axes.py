"""Where iterations, phases and marks lie on the x axis that the page shows."""

from collections.abc import Collection
from typing import Any

from webapp.metrics.models import AxisRow
from webapp.metrics.selectors import AXES
from webapp.runs.models import Run
from webapp.runs.selectors import cuts, marks, phase_bands

# The axes that the overview offers, in the order of its selector.
OFFERED = ("iteration", "sampled_tokens", "device_seconds", "optimizer_step")
# Phases drawn without shading.
PLAIN_PHASES = frozenset({"rl"})
MARK_WORDS = {"rewind": "resumed", "live_edit": "edited", "alert": "alert", "stop": "stopped"}


def axis_of(name: str) -> str:
    """The axis of a query string; anything unknown is the iteration."""
    return name if name in AXES else "iteration"


def positions(run: Run, axis: str, iterations: Collection[int]) -> dict[int, float]:
    """Iteration -> its place on the axis; iterations that the run has not logged are left out."""
    if axis == "iteration":
        return {i: float(i) for i in iterations}
    visible = cuts(run.pk)
    rows = AxisRow.objects.filter(run=run, iteration__in=set(iterations)).order_by("iteration", "attempt")
    found = {}
    for iteration, attempt, place in rows.values_list("iteration", "attempt", axis):
        until = visible.get(attempt)
        if until is None or iteration <= until:
            found[iteration] = float(place)
    # The start of a run lies at the origin of every axis, logged or not.
    return {0: 0.0, **found} if 0 in iterations else found


def drawn_bands(run: Run, axis: str) -> list[dict[str, Any]]:
    """The shaded phases as {begin, end, title} on the axis. A run with a single phase has none.

    An iteration's work lies between the place where the one before it ended and its own.
    """
    bands = phase_bands(run)
    if len({band.name for band in bands}) < 2:
        return []
    shaded = [band for band in bands if band.name not in PLAIN_PHASES]
    if axis == "iteration":
        return [
            {"begin": b.begin - 0.5, "end": None if b.end is None else b.end + 0.5, "title": b.title} for b in shaded
        ]
    edges = {b.begin - 1 for b in shaded} | {b.end for b in shaded if b.end is not None}
    at = positions(run, axis, edges)
    return [
        {"begin": at[b.begin - 1], "end": at.get(b.end) if b.end is not None else None, "title": b.title}
        for b in shaded
        if b.begin - 1 in at
    ]


def drawn_marks(run: Run, axis: str) -> list[dict[str, Any]]:
    """Rewinds, edits, alerts and stops as {x, kind, text} on the axis."""
    found = marks(run)
    at = positions(run, axis, {mark["iteration"] or 0 for mark in found})
    out = []
    for mark in found:
        place = at.get(mark["iteration"] or 0)
        if place is not None:
            kind = str(mark["key"] or mark.get("mark", ""))
            out.append({"x": place, "kind": kind, "text": MARK_WORDS.get(kind, kind)})
    return out


def x_json(axis: str) -> dict[str, Any]:
    """The axis as charts name it. It starts at 0 in all of a run's charts, so that they can be read side by side."""
    title, unit = AXES[axis]
    return {"axis": axis, "title": title, "unit": unit, "from": 0}
