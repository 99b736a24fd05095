"""Histograms, heat maps, scatters, tables and texts that a trainer sent, as the specs of `static/js/charts.js`."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from webapp.core.counts import counted
from webapp.methods.selectors import describe
from webapp.metrics.axes import Scale
from webapp.runpage.axes import behind, x_json
from webapp.runs.models import EventRow, Run
from webapp.runs.selectors import DRAWN, drawn_of, events_of

MOST_COLUMNS = 120
MOST_ROWS = 40
WORDS = {"nan": "NaN", "inf": "∞", "-inf": "−∞"}
Spec = dict[str, Any]


def drawn_iterations(run: Run) -> list[int]:
    """Every iteration at which the run drew something."""
    rows = drawn_of(run).filter(iteration__isnull=False)
    return [at for at in rows.order_by("iteration").values_list("iteration", flat=True).distinct() if at is not None]


def figure_spec(run: Run, kind: str, key: str, *, at: int | None = None, over: str | None = None) -> Spec | None:
    """The newest figure of that kind and key up to the iteration `at` (of all, without one); a histogram can be drawn
    `over` an axis instead. None when the run has no such figure.
    """
    rows = events_of(run, kind, key=key).filter(kind__in=DRAWN)
    if over is not None and kind == "histogram":
        return _over_time(run, key, over)
    upto = rows if at is None else rows.filter(iteration__lte=at)
    row = upto.order_by("-iteration", "-attempt", "-pk").first()
    if row is not None:
        return _figure(row)
    first = rows.order_by("iteration", "pk").first()
    if first is None:
        return None
    empty = f"Nothing up to iteration {at}; the first is of iteration {first.iteration}."
    return {"kind": "text", "title": describe(key).title, "text": "", "empty": empty}


def _figure(row: EventRow) -> Spec:
    p = row.payload
    common = {"title": describe(row.key).title, "iteration": row.iteration}
    note = [f"iteration {row.iteration}"]
    if p.get("note"):
        note.append(p["note"])
    if row.kind == "histogram":
        spec = _histogram(row.key, p)
        if flags := p.get("nonfinite"):
            note.append(
                "not on the axis: " + ", ".join(f"{flags[kind]} {WORDS[kind]}" for kind in WORDS if kind in flags)
            )
    elif row.kind == "heatmap":
        spec = _heatmap(row.key, p)
        note.append(colours(spec["zmin"], spec["zmax"]))
    elif row.kind == "scatter":
        spec = _scatter(row.key, p)
    elif row.kind == "table":
        spec = {"kind": "table", "columns": p["columns"], "rows": _cells(p["rows"], p.get("nonfinite", ()))}
    else:
        spec = {"kind": "text", "text": p["text"]}
    return {**common, **spec, "note": " · ".join(note)}


def _histogram(key: str, p: dict[str, Any]) -> Spec:
    metric = describe(key)
    edges = p["edges"]
    bins = list(pairwise(edges))
    series = {
        "key": key,
        "name": metric.title,
        "slot": 0,
        "x": [(a + b) / 2 for a, b in bins],
        "y": p["counts"],
        "widths": [b - a for a, b in bins],
        "notes": [f"from {a:.4g} to {b:.4g}" for a, b in bins],
    }
    x = {"title": metric.title, "unit": metric.unit}
    return {"kind": "bars", "x": x, "y": {"title": "count"}, "legend": False, "series": [series]}


def _heatmap(key: str, p: dict[str, Any]) -> Spec:
    values = [v for row in p["z"] for v in row if v is not None]
    rate = describe(key).rate
    return {
        "kind": "heatmap",
        "x": {"labels": p["x"]},
        # The first row stands on top, as in a table.
        "y": {"labels": p["y"], "reversed": True},
        "z": p["z"],
        "nonfinite": p.get("nonfinite", []),
        "zmin": 0 if rate else min(values, default=0),
        "zmax": 1 if rate else max(values, default=1),
    }


def colours(low: float, high: float) -> str:
    """The key of a heat map's colours."""
    return f"pale {low:.3g}, strong {high:.3g}"


def _scatter(key: str, p: dict[str, Any]) -> Spec:
    labels: Sequence[str] = p.get("labels") or [""] * len(p["x"])
    flags: dict[int, dict[str, str]] = {}
    for index, name, kind in p.get("nonfinite", ()):
        flags.setdefault(index, {})[name] = kind
    kept = [i for i in range(len(p["x"])) if i not in flags]
    series = {
        "key": key, "name": describe(key).title, "slot": 0,
        "x": [p["x"][i] for i in kept], "y": [p["y"][i] for i in kept],
        "notes": [labels[i] for i in kept] if p.get("labels") else None,
    }  # fmt: skip
    # At the edge on which each would lie, and named: (x or null, y or null, word, label).
    off = [
        [p["x"][i], p["y"][i], ", ".join(f"{n} {WORDS[k]}" for n, k in found.items()), labels[i]]
        for i, found in flags.items()
    ]
    axes = {"x": {"title": p.get("x_title", "")}, "y": {"title": p.get("y_title", "")}}
    return {"kind": "scatter", **axes, "series": [series], "off": off}


def _cells(rows: Sequence[Sequence[Any]], flags: Sequence[Sequence[Any]]) -> list[list[Any]]:
    out = [list(row) for row in rows]
    for row, column, kind in flags:
        out[row][column] = WORDS[kind]
    return out


# Over time


def _over_time(run: Run, key: str, axis: str) -> Spec | None:
    """Each iteration's histogram as a column of shares, on bins that all of them share."""
    newest = {row.iteration: row for row in events_of(run, "histogram", key=key).order_by("iteration", "attempt", "pk")}
    if not newest:
        return None
    scale = Scale(run.pk, axis)
    placed: dict[float, EventRow] = {}
    for row in newest.values():
        place = scale.at(row.iteration or 0)
        if place is not None:
            placed[place] = row  # of several at one place, the last
    columns = list(placed.items())
    shown = columns
    if len(columns) > MOST_COLUMNS:
        shown = [columns[(i + 1) * len(columns) // MOST_COLUMNS - 1] for i in range(MOST_COLUMNS)]
    edges = common_edges([row.payload["edges"] for _, row in shown])
    shares = [_shares(row.payload, edges) for _, row in shown]
    metric = describe(key)
    notes = [f"{len(shown)} of {counted(len(columns), 'iteration')}"] if len(shown) < len(columns) else []
    off = sum(n for row in newest.values() for n in (row.payload.get("nonfinite") or {}).values())
    if off:
        notes.append(f"{counted(off, 'value that is no number is', 'values that are no numbers are')} not on the axis")
    top = max((v for column in shares for v in column if v is not None), default=1)
    return {
        "kind": "heatmap",
        "title": metric.title,
        "note": " · ".join(["share of each iteration's values", colours(0, top), *notes]),
        "x": {
            **x_json(axis),
            "edges": between([place for place, _ in shown]),
            "labels": [f"iteration {row.iteration}" for _, row in shown],
        },
        "y": {
            "edges": edges,
            "labels": [f"{a:.3g} to {b:.3g}" for a, b in pairwise(edges)],
            "title": metric.unit,
        },
        "z": [[column[i] for column in shares] for i in range(len(edges) - 1)],
        "zmin": 0,
        "zmax": top,
        **behind(run, scale),
    }


def common_edges(all_edges: Sequence[Sequence[float]]) -> list[float]:
    """The bins of all, where they agree; else equal bins from the lowest edge to the highest."""
    first = list(all_edges[0])
    if all(list(edges) == first for edges in all_edges) and len(first) <= MOST_ROWS + 1:
        return first
    low, high = min(edges[0] for edges in all_edges), max(edges[-1] for edges in all_edges)
    return [low * (1 - i / MOST_ROWS) + high * (i / MOST_ROWS) for i in range(MOST_ROWS)] + [high]


def _shares(p: dict[str, Any], edges: Sequence[float]) -> list[float | None]:
    """The histogram's shares on other bins: each of its own is spread evenly over what it overlaps."""
    total = sum(p["counts"])
    if not total:
        return [None] * (len(edges) - 1)
    if list(p["edges"]) == list(edges):
        return [count / total for count in p["counts"]]
    out = [0.0] * (len(edges) - 1)
    for (a, b), count in zip(pairwise(p["edges"]), p["counts"], strict=True):
        if not count:
            continue
        for i, (low, high) in enumerate(pairwise(edges)):
            overlap = min(b, high) - max(a, low)
            if overlap > 0:
                out[i] += count / total * overlap / (b - a)
    return list(out)


def between(places: Sequence[float]) -> list[float]:
    """Edges half-way between neighbours, so that every column stands around its place."""
    if len(places) == 1:
        return [places[0] - 0.5, places[0] + 0.5]
    middles = [(a + b) / 2 for a, b in pairwise(places)]
    return [places[0] - (middles[0] - places[0]), *middles, places[-1] + (places[-1] - middles[-1])]
