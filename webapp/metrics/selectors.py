"""Reads of series: newest values, reduced series on any axis, and what is new since a live number."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import QuerySet

from webapp.metrics.axes import AXES, COLUMNS, WALL, origin, places, seconds
from webapp.metrics.models import AxisRow, NonFinite, Series
from webapp.metrics.reduce import Reading, reduce
from webapp.runs.models import Run
from webapp.runs.selectors import cuts

NONFINITE_NAME = {kind.value: kind.label for kind in NonFinite if kind}
DEFAULT_POINTS = 1000
DELTA_LIMIT = 20_000
AXIS_JSON = ("iteration", *COLUMNS)


class Stored(NamedTuple):
    """A row of the point table."""

    iteration: int
    attempt: int
    value: float | None
    nonfinite: int


@dataclass(frozen=True)
class SeriesData:
    """A series ready for a chart. `x` is on the asked axis; `y` is None where `nonfinite` says what stands there.

    `total` is the number of points in the asked range before reduction.
    """

    key: str
    x: list[float]
    y: list[float | None]
    iteration: list[int]
    nonfinite: list[tuple[int, str]]
    total: int

    def json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "x": self.x,
            "y": self.y,
            "iteration": self.iteration,
            "nonfinite": [list(pair) for pair in self.nonfinite],
            "total": self.total,
            "reduced": self.total > len(self.x),
        }


def series_of(run: Run) -> QuerySet[Series]:
    """Every series with its newest value, by key. No point is read."""
    return Series.objects.filter(run=run, last_iteration__isnull=False).order_by("key")


def latest_values(runs: Iterable[Run], keys: Sequence[str]) -> dict[str, dict[str, Series]]:
    """Newest values of some keys for many runs in one query: {run id: {key: series}}."""
    found: dict[str, dict[str, Series]] = {run.pk: {} for run in runs}
    for series in Series.objects.filter(run__in=found, key__in=keys, last_iteration__isnull=False):
        found[series.run_id][series.key] = series
    return found


def largest(run_id: str, key: str) -> float | None:
    """The largest value that a run ever logged under a key, None when it logged none."""
    sql = (
        "SELECT MAX(value) FROM metrics_point "
        "WHERE series_id IN (SELECT id FROM metrics_series WHERE run_id = %s AND key = %s)"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql, [run_id, key])
        row = cursor.fetchone()
    return row[0] if row else None


def visible_sql(visible: Mapping[int, int | None]) -> tuple[str, list[int]]:
    """An SQL condition (with its parameters) that leaves out what later attempts repeated."""
    if all(until is None for until in visible.values()):
        return "1 = 1", []
    parts: list[str] = []
    params: list[int] = []
    for attempt, until in sorted(visible.items()):
        parts.append("attempt = %s" if until is None else "(attempt = %s AND iteration <= %s)")
        params += [attempt] if until is None else [attempt, until]
    return f"({' OR '.join(parts)})", params


def last_point(series_id: int, visible: Mapping[int, int | None]) -> Stored | None:
    """The newest point of a series that still counts."""
    condition, params = visible_sql(visible)
    sql = (
        f"SELECT iteration, attempt, value, nonfinite FROM metrics_point WHERE series_id = %s AND {condition} "
        "ORDER BY series_id DESC, iteration DESC, attempt DESC LIMIT 1"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql, [series_id, *params])
        row = cursor.fetchone()
    return Stored(*row) if row else None


def load_series(
    run: Run,
    keys: Sequence[str],
    *,
    axis: str = "iteration",
    max_points: int = DEFAULT_POINTS,
    begin: int | None = None,
    end: int | None = None,
) -> list[SeriesData]:
    """The series of these keys that the run has, in the order asked for, reduced to about `max_points` each.

    `begin` and `end` bound the iterations (both included). Raises KeyError for an axis that is not in `AXES`.
    """
    if axis not in AXES:
        raise KeyError(f"axis {axis!r} is unknown; expected one of {', '.join(AXES)}")
    ids = dict(Series.objects.filter(run=run, key__in=keys).values_list("key", "pk"))
    visible = cuts(run.pk)
    positions = None if axis == "iteration" else places(run.pk, axis)
    out = []
    for key in keys:
        if key not in ids:
            continue
        points = _points(ids[key], visible, begin, end)
        if positions is not None:
            # A point without its axes has no place here; on the iterations it is there.
            points = [point for point in points if point[0] in positions]
        if points:
            out.append(_data(key, points, reduce(points, max_points), positions))
    return out


def _data(
    key: str, points: Sequence[Reading], kept: Sequence[Reading], positions: Mapping[int, float] | None
) -> SeriesData:
    iterations = [iteration for iteration, _, _ in kept]
    return SeriesData(
        key=key,
        x=list(iterations) if positions is None else [positions[i] for i in iterations],
        y=[value for _, value, _ in kept],
        iteration=iterations,
        nonfinite=_flags(kept),
        total=len(points),
    )


def _points(series_id: int, visible: Mapping[int, int | None], begin: int | None, end: int | None) -> list[Reading]:
    """All points that still count, in order; of an iteration that several attempts logged, the newest attempt's."""
    condition, params = visible_sql(visible)
    sql = f"SELECT iteration, value, nonfinite FROM metrics_point WHERE series_id = %s AND {condition}"
    params = [series_id, *params]
    for bound, operator in ((begin, ">="), (end, "<=")):
        if bound is not None:
            sql += f" AND iteration {operator} %s"
            params.append(bound)
    with connection.cursor() as cursor:
        cursor.execute(sql + " ORDER BY iteration, attempt", params)
        rows: list[Reading] = cursor.fetchall()
    if len(visible) == 1:
        return rows
    return list({row[0]: row for row in rows}.values())


def _flags(points: Sequence[Reading]) -> list[tuple[int, str]]:
    return [(index, NONFINITE_NAME[kind]) for index, (_, _, kind) in enumerate(points) if kind]


def axes_at(run: Run) -> dict[int, dict[str, Any]]:
    """All stored axes of every iteration that still counts: {iteration: {axis: value}}."""
    visible = cuts(run.pk)
    out: dict[int, dict[str, Any]] = {}
    for row in AxisRow.objects.filter(run=run).order_by("iteration", "attempt").values("attempt", *AXIS_JSON, "phase"):
        attempt = row.pop("attempt")
        until = visible.get(attempt)
        if until is None or row["iteration"] <= until:
            out[row["iteration"]] = row
    return out


def delta(run_id: str, since: int, newest: int) -> dict[str, Any] | None:
    """Points that became visible after the live number `since`, up to `newest`, and their axes; None when that is too
    much to send.

        {"axes": [{"iteration": 3, "optimizer_step": 3, ..., "phase": "rl"}],
         "series": [{"key": "reward", "iteration": [3], "y": [0.5], "nonfinite": [[0, "nan"]]}]}

    An empty dictionary when there is nothing new.
    """
    visible = cuts(run_id)
    # Also rows that a batch after `newest` has touched again: points of before may stand there.
    changed = AxisRow.objects.filter(run_id=run_id, live_seq__gt=since).order_by("iteration", "attempt")
    rows = [
        row
        for row in changed.values("attempt", *AXIS_JSON, "phase", "time")[: DELTA_LIMIT + 1]
        if (until := visible.get(row["attempt"])) is None or row["iteration"] <= until
    ]
    if not rows:
        return {}
    series = list(Series.objects.filter(run_id=run_id, live_seq__gt=since).values_list("pk", "key"))
    if len(rows) > DELTA_LIMIT or len(rows) * max(1, len(series)) > DELTA_LIMIT:
        return None
    low, high = rows[0]["iteration"], rows[-1]["iteration"]
    condition, params = visible_sql(visible)
    sql = (
        "SELECT iteration, value, nonfinite FROM metrics_point "
        "WHERE series_id = %s AND iteration BETWEEN %s AND %s AND live_seq > %s AND live_seq <= %s "
        f"AND {condition} ORDER BY iteration, attempt"
    )
    found = []
    with connection.cursor() as cursor:
        for pk, key in series:
            cursor.execute(sql, [pk, low, high, since, newest, *params])
            points = cursor.fetchall()
            if points:
                found.append(
                    {
                        "key": key,
                        "iteration": [point[0] for point in points],
                        "y": [point[1] for point in points],
                        "nonfinite": [list(flag) for flag in _flags(points)],
                    }
                )
    passed = seconds({row["iteration"]: row["time"] for row in rows}, origin(run_id))
    for row in rows:
        del row["attempt"], row["time"]
        row[WALL] = passed[row["iteration"]]
    return {"axes": rows, "series": found}
