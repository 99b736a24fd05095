"""Phases and marks on the x axis that the page shows."""

from typing import Any

from webapp.metrics.axes import AXES, Scale
from webapp.runs.models import Run
from webapp.runs.selectors import marks, phase_bands

# The axes that stand beside each other; the others are behind a button.
USUAL = ("iteration", "sampled_tokens", "device_seconds", "optimizer_step")
# Phases drawn without shading.
PLAIN_PHASES = frozenset({"rl"})
MARK_WORDS = {"rewind": "resumed", "live_edit": "edited", "alert": "alert", "stop": "stopped"}


def axis_of(name: str) -> str:
    """The axis of a query string; anything unknown is the iteration."""
    return name if name in AXES else "iteration"


def behind(run: Run, scale: Scale) -> dict[str, Any]:
    """Bands and marks, as a chart's spec has them."""
    return {"bands": drawn_bands(run, scale), "marks": drawn_marks(run, scale)}


def drawn_bands(run: Run, scale: Scale) -> list[dict[str, Any]]:
    """The shaded phases as {begin, end, title} on the axis. A run with a single phase has none.

    An iteration's work lies between the place where the one before it ended and its own.
    """
    bands = phase_bands(run)
    if len({band.name for band in bands}) < 2:
        return []
    shaded = [band for band in bands if band.name not in PLAIN_PHASES]
    if scale.axis == "iteration":
        return [
            {"begin": b.begin - 0.5, "end": None if b.end is None else b.end + 0.5, "title": b.title} for b in shaded
        ]
    return [
        {"begin": begin, "end": None if b.end is None else scale.at(b.end), "title": b.title}
        for b in shaded
        if (begin := scale.at(b.begin - 1)) is not None
    ]


def drawn_marks(run: Run, scale: Scale) -> list[dict[str, Any]]:
    """Rewinds, edits, alerts and stops as {x, kind, text, note} on the axis; the note is what the trainer said."""
    out = []
    for mark in marks(run):
        place = scale.at(mark["iteration"] or 0)
        if place is not None:
            kind = str(mark["key"])
            note = f"iteration {mark['iteration'] or 0}"
            said = str(mark.get("message") or "")[:300]
            out.append(
                {
                    "x": place,
                    "kind": kind,
                    "text": MARK_WORDS.get(kind, kind),
                    "note": f"{note}: {said}" if said else note,
                }
            )
    return out


def x_json(axis: str) -> dict[str, Any]:
    """The axis as charts name it. It starts at 0 in all of a run's charts, so that they can be read side by side."""
    title, unit = AXES[axis]
    return {"axis": axis, "title": title, "unit": unit, "from": 0}
