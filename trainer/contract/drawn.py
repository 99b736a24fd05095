"""Histograms, heat maps, scatters, tables and texts: made from plain values, and kept to a size that a page can show.

The makers take floats of every kind and flag what is no number. `bounded` reduces what is too large and says so in the
event's ``note``; who writes events and who reads them both call it, and a second call changes nothing. The makers leave
texts whole: whoever writes the event takes secrets out of them first.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, TypeVar

from trainer.contract.events import Axes, Cell, Heatmap, Histogram, NonFinite, Scatter, Table, Text, clean

MOST_BINS = 500
MOST_CELLS = 10_000
MOST_POINTS = 3_000
MOST_ROWS = 1_000
MOST_COLUMNS = 60
LONGEST_CELL = 4_000
LONGEST_TABLE = 1_000_000
LONGEST_TEXT = 200_000
"""Limits: of numbers of things, and of characters."""

DRAWN = (Histogram, Heatmap, Scatter, Table, Text)
T = TypeVar("T")


def kind_of(value: float) -> NonFinite:
    """The flag of a float that is not finite."""
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def histogram(
    axes: Axes, key: str, values: Iterable[float], *, bins: int = 20, span: tuple[float, float] | None = None
) -> Histogram:
    """Counts of the values in equal bins over ``span`` (default: from the smallest to the largest). A value outside
    ``span`` goes to the nearest bin; NaN and infinities are counted apart."""
    finite, flags = [], dict[NonFinite, int]()
    for value in map(float, values):
        if math.isfinite(value):
            finite.append(value)
        else:
            flags[kind_of(value)] = flags.get(kind_of(value), 0) + 1
    low, high = span or (min(finite, default=0.0), max(finite, default=1.0))
    if not low < high:
        pad = max(0.5, abs(low) * 1e-6)
        low, high = max(low - pad, -sys.float_info.max), min(high + pad, sys.float_info.max)
    edges = [low * (1 - i / bins) + high * (i / bins) for i in range(bins)] + [high]
    if any(b <= a for a, b in pairwise(edges)):
        # The values lie closer together than floats can tell apart in so many bins.
        bins, edges = 1, [low, high]
    counts = [0] * bins
    for value in finite:
        counts[min(bins - 1, max(0, bisect_right(edges, value) - 1))] += 1
    return bounded(Histogram(axes=axes, key=key, edges=edges, counts=counts, nonfinite=flags))


def heatmap(
    axes: Axes, key: str, *, x: Sequence[str], y: Sequence[str], z: Sequence[Sequence[float | None]]
) -> Heatmap:
    """A matrix with a row for each of ``y`` and a column for each of ``x``; None is an empty cell."""
    cells, flags = _flagged(z)
    return bounded(
        Heatmap(axes=axes, key=key, x=[clean(t) for t in x], y=[clean(t) for t in y], z=cells, nonfinite=flags)
    )


def scatter(
    axes: Axes,
    key: str,
    points: Iterable[tuple[float, float]],
    *,
    labels: Sequence[str] = (),
    x_title: str = "",
    y_title: str = "",
) -> Scatter:
    """Points (x, y), each with a label or none of them."""
    pairs = [(float(x), float(y)) for x, y in points]
    flags: list[tuple[int, Literal["x", "y"], NonFinite]] = []
    for i, (x, y) in enumerate(pairs):
        flags += [(i, "x", kind_of(x))] if not math.isfinite(x) else []
        flags += [(i, "y", kind_of(y))] if not math.isfinite(y) else []
    columns = [[v if math.isfinite(v) else None for v in column] for column in zip(*pairs, strict=True)] or [[], []]
    return bounded(
        Scatter(
            axes=axes,
            key=key,
            x=columns[0],
            y=columns[1],
            labels=[clean(t) for t in labels],
            x_title=x_title,
            y_title=y_title,
            nonfinite=flags,
        )
    )


def table(axes: Axes, key: str, *, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """Rows of plain JSON values."""
    total = len(rows)
    cells, flags = _flagged(rows[:MOST_ROWS])
    note = _first(MOST_ROWS, total, "rows") if total > MOST_ROWS else ""
    names = [clean(name) for name in columns]
    return Table(axes=axes, key=key, columns=names, rows=cells, nonfinite=flags, note=note)


def text(axes: Axes, key: str, content: str) -> Text:
    """A plain text."""
    return Text(axes=axes, key=key, text=clean(content))


def bounded(event: T) -> T:
    """The event, or a smaller one that says in its note what is missing. Events of other kinds stay as they are."""
    if isinstance(event, Histogram) and len(event.counts) > MOST_BINS:
        return _wider_bins(event)  # type: ignore[return-value]
    if isinstance(event, Heatmap) and len(event.x) * len(event.y) > MOST_CELLS:
        return _coarser(event)  # type: ignore[return-value]
    if isinstance(event, Scatter) and len(event.x) > MOST_POINTS:
        return _thinned(event)  # type: ignore[return-value]
    if isinstance(event, Table):
        return _shortened(event)  # type: ignore[return-value]
    if isinstance(event, Text) and len(event.text) > LONGEST_TEXT:
        note = _first(LONGEST_TEXT, len(event.text), "characters")
        return _changed(event, note, text=event.text[:LONGEST_TEXT])  # type: ignore[return-value]
    return event


def _changed(event: Any, note: str, **fields: Any) -> Any:
    notes = "; ".join(part for part in (event.note, note) if part)
    return event.model_copy(update={**fields, "note": notes})


def _first(shown: int, total: int, what: str) -> str:
    return f"the first {shown} of {total} {what}"


def _flagged(rows: Sequence[Sequence[Any]]) -> tuple[list[list[Any]], list[Cell]]:
    flags: list[Cell] = []
    out = []
    for r, row in enumerate(rows):
        cells: list[Any] = []
        for c, value in enumerate(row):
            if isinstance(value, float) and not math.isfinite(value):
                flags.append((r, c, kind_of(value)))
                cells.append(None)
            else:
                cells.append(clean(value) if isinstance(value, str) else value)
        out.append(cells)
    return out, flags


def _wider_bins(event: Histogram) -> Histogram:
    step = -(-len(event.counts) // MOST_BINS)
    counts = [sum(event.counts[i : i + step]) for i in range(0, len(event.counts), step)]
    edges = [*event.edges[:-1:step], event.edges[-1]]
    note = f"{step} of {len(event.counts)} bins in each"
    changed: Histogram = _changed(event, note, counts=counts, edges=edges)
    return changed


def _coarser(event: Heatmap) -> Heatmap:
    """Blocks of cells with their mean; a block that holds something that is no number is that."""
    height, width = len(event.y), len(event.x)
    down = across = 1
    while -(-height // down) * -(-width // across) > MOST_CELLS:
        if height / down >= width / across:
            down += 1
        else:
            across += 1
    flags: dict[tuple[int, int], NonFinite] = {}
    for row, column, kind in event.nonfinite:
        flags.setdefault((row // down, column // across), kind)
    z: list[list[float | None]] = []
    for top in range(0, height, down):
        cells: list[float | None] = []
        for left in range(0, width, across):
            block = [v for row in event.z[top : top + down] for v in row[left : left + across] if v is not None]
            empty = not block or (top // down, left // across) in flags
            cells.append(None if empty else math.fsum(block) / len(block))
        z.append(cells)
    note = f"each cell is the mean of up to {down} × {across} of the {height} × {width} that were sent"
    changed: Heatmap = _changed(
        event,
        note,
        x=_merged(event.x, across),
        y=_merged(event.y, down),
        z=z,
        nonfinite=[(row, column, kind) for (row, column), kind in sorted(flags.items())],
    )
    return changed


def _merged(names: Sequence[str], step: int) -> list[str]:
    if step == 1:
        return list(names)
    parts = [names[i : i + step] for i in range(0, len(names), step)]
    return [part[0] if len(part) == 1 else f"{part[0]} … {part[-1]}" for part in parts]


def _thinned(event: Scatter) -> Scatter:
    """Evenly chosen points; those that are no numbers come first, since they are what one looks for."""
    total = len(event.x)
    special = sorted({i for i, _, _ in event.nonfinite})[: MOST_POINTS // 2]
    rest = [i for i in range(total) if i not in set(special)]
    room = MOST_POINTS - len(special)
    kept = sorted([*special, *(rest[i * len(rest) // room] for i in range(min(room, len(rest))))])
    place = {index: i for i, index in enumerate(kept)}
    changed: Scatter = _changed(
        event,
        f"{len(kept)} of {total} points, evenly chosen",
        x=[event.x[i] for i in kept],
        y=[event.y[i] for i in kept],
        labels=[event.labels[i] for i in kept] if event.labels else [],
        nonfinite=[(place[i], name, kind) for i, name, kind in event.nonfinite if i in place],
    )
    return changed


def _shortened(event: Table) -> Table:
    notes = []
    columns, rows = event.columns, event.rows
    if len(columns) > MOST_COLUMNS:
        notes.append(_first(MOST_COLUMNS, len(columns), "columns"))
        columns, rows = columns[:MOST_COLUMNS], [row[:MOST_COLUMNS] for row in rows]
    cut = False
    room, kept = LONGEST_TABLE, []
    for row in rows[:MOST_ROWS]:
        cells = []
        for value in row:
            if isinstance(value, str) and len(value) > LONGEST_CELL:
                value, cut = value[: LONGEST_CELL - 1] + "…", True
            cells.append(value)
        room -= sum(len(v) if isinstance(v, str) else len(str(v)) for v in cells)
        if room < 0:
            break
        kept.append(cells)
    if len(kept) < len(rows):
        notes.append(_first(len(kept), len(rows), "rows"))
    if cut:
        notes.append(f"cells cut to {LONGEST_CELL} characters")
    if not notes:
        return event
    flags = [cell for cell in event.nonfinite if cell[0] < len(kept) and cell[1] < len(columns)]
    changed: Table = _changed(event, "; ".join(notes), columns=columns, rows=kept, nonfinite=flags)
    return changed
