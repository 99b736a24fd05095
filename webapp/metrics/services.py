"""Writes of points. The caller holds the run's lock and gives the live number under which the rows become visible."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection

from webapp.metrics import selectors
from webapp.metrics.models import AxisRow, NonFinite, Series
from webapp.runs.selectors import cuts

NONFINITE_CODE = {kind.label: kind.value for kind in NonFinite if kind}
AXIS_COLUMNS = (
    "optimizer_step",
    "phase",
    "policy_version",
    "prompts",
    "rollouts",
    "sampled_tokens",
    "trained_tokens",
    "discarded_tokens",
    "evaluation_tokens",
    "device_seconds",
)

_UPSERT_POINT = """
    INSERT INTO metrics_point (series_id, iteration, attempt, value, nonfinite, live_seq) VALUES (%s, %s, %s, %s, %s,
    %s) ON CONFLICT (series_id, iteration, attempt) DO UPDATE SET value = excluded.value, nonfinite =
    excluded.nonfinite, live_seq = excluded.live_seq
"""
_UPDATE_LATEST = """
    UPDATE metrics_series SET
        last_value = CASE WHEN {newer} THEN %s ELSE last_value END,
        last_nonfinite = CASE WHEN {newer} THEN %s ELSE last_nonfinite END,
        last_attempt = CASE WHEN {newer} THEN %s ELSE last_attempt END,
        last_iteration = CASE WHEN {newer} THEN %s ELSE last_iteration END,
        live_seq = %s
    WHERE id = %s
"""


@dataclass(frozen=True)
class AxesRow:
    """Where an iteration lies: `values` are the contract's axes, `iteration` among them."""

    values: Mapping[str, Any]
    time: datetime

    @property
    def iteration(self) -> int:
        return int(self.values["iteration"])


@dataclass(frozen=True)
class ScalarRow:
    """Named numbers at an iteration; a null in `values` has its kind ("nan", "inf", "-inf") in `nonfinite`."""

    iteration: int
    values: Mapping[str, float | None]
    nonfinite: Mapping[str, str] = field(default_factory=dict)


def store_axes(*, run_id: str, attempt: int, rows: Sequence[AxesRow], seq: int) -> None:
    """Idempotent: the last of several rows for an iteration holds, and gets the new live number."""
    newest = {row.iteration: row for row in rows}
    AxisRow.objects.bulk_create(
        [
            AxisRow(
                run_id=run_id,
                attempt=attempt,
                iteration=iteration,
                time=row.time,
                live_seq=seq,
                **{name: row.values[name] for name in AXIS_COLUMNS if name in row.values},
            )
            for iteration, row in newest.items()
        ],
        update_conflicts=True,
        unique_fields=["run", "iteration", "attempt"],
        update_fields=[*AXIS_COLUMNS, "time", "live_seq"],
        batch_size=200,
    )


def store_scalars(*, run_id: str, attempt: int, rows: Iterable[ScalarRow], seq: int) -> None:
    """Idempotent upsert on (series, iteration, attempt); an override gets the new live number."""
    points: dict[tuple[str, int], tuple[float | None, int]] = {}
    for row in rows:
        for key, value in row.values.items():
            kind = NONFINITE_CODE[row.nonfinite[key]] if value is None else NonFinite.FINITE.value
            points[key[:160], row.iteration] = (value, kind)
    if not points:
        return
    ids = _series_ids(run_id, {key for key, _ in points})
    latest: dict[str, tuple[int, float | None, int]] = {}
    upserts = []
    for (key, iteration), (value, kind) in points.items():
        upserts.append((ids[key], iteration, attempt, value, kind, seq))
        if key not in latest or iteration >= latest[key][0]:
            latest[key] = (iteration, value, kind)
    updates = []
    for key, (iteration, value, kind) in latest.items():
        row_values = (value, kind, attempt, iteration)
        updates.append((*(x for new in row_values for x in (iteration, new)), seq, ids[key]))
    newer = "(last_iteration IS NULL OR last_iteration <= %s)"
    with connection.cursor() as cursor:
        cursor.executemany(_UPSERT_POINT, upserts)
        cursor.executemany(_UPDATE_LATEST.format(newer=newer), updates)


def _series_ids(run_id: str, keys: set[str]) -> dict[str, int]:
    found = dict(Series.objects.filter(run_id=run_id).values_list("key", "pk"))
    missing = sorted(keys - found.keys())
    if missing:
        Series.objects.bulk_create([Series(run_id=run_id, key=key) for key in missing], ignore_conflicts=True)
        found = dict(Series.objects.filter(run_id=run_id).values_list("key", "pk"))
    return found


def rewind(*, run_id: str, iteration: int, seq: int) -> None:
    """After `webapp.runs.services.rewind`: the newest values are again those of the points that still count."""
    affected = list(Series.objects.filter(run_id=run_id, last_iteration__gt=iteration))
    visible = cuts(run_id)
    for series in affected:
        last = selectors.last_point(series.pk, visible)
        series.last_iteration = last.iteration if last else None
        series.last_attempt = last.attempt if last else None
        series.last_value = last.value if last else None
        series.last_nonfinite = last.nonfinite if last else NonFinite.FINITE
        series.live_seq = seq
    Series.objects.bulk_update(
        affected, ["last_iteration", "last_attempt", "last_value", "last_nonfinite", "live_seq"], batch_size=100
    )
