"""Where iterations lie on each x axis."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from webapp.metrics.models import AxisRow
from webapp.runs.models import Run
from webapp.runs.selectors import cuts

WALL = "wall_seconds"
# Name of an axis -> its title and unit. Each is a column of `AxisRow`, but for the iteration itself and the time that
# has passed since the run began, pauses between attempts included.
AXES: dict[str, tuple[str, str]] = {
    "iteration": ("Iteration", ""),
    "sampled_tokens": ("Sampled tokens", "tokens"),
    "device_seconds": ("Device time", "s"),
    "optimizer_step": ("Optimiser steps", "steps"),
    "policy_version": ("Policy version", ""),
    "prompts": ("Prompts", "prompts"),
    "rollouts": ("Rollouts", "rollouts"),
    "trained_tokens": ("Trained tokens", "tokens"),
    "discarded_tokens": ("Discarded tokens", "tokens"),
    "evaluation_tokens": ("Evaluation tokens", "tokens"),
    WALL: ("Time since the start", "s"),
}
COLUMNS = tuple(name for name in AXES if name not in ("iteration", WALL))


def places(run_id: str, axis: str) -> dict[int, float]:
    """Iteration -> its place on an axis other than the iteration itself, in ascending order of both.

    Of an iteration that several attempts logged, the newest that still counts tells it.
    """
    visible = cuts(run_id)
    rows = AxisRow.objects.filter(run_id=run_id).order_by("iteration", "attempt")
    column = "time" if axis == WALL else axis
    found: dict[int, Any] = {}
    for iteration, attempt, place in rows.values_list("iteration", "attempt", column):
        if attempt in visible and ((until := visible[attempt]) is None or iteration <= until):
            found[iteration] = place
    if axis == WALL:
        return seconds(found, origin(run_id))
    return found


def origin(run_id: str) -> datetime | None:
    """When the run began: its first start, or its first event where the trainer's clock is behind."""
    started = Run.objects.filter(pk=run_id).values_list("started_at", flat=True).first()
    first = (
        AxisRow.objects.filter(run_id=run_id).order_by("iteration", "attempt").values_list("time", flat=True).first()
    )
    return min((time for time in (started, first) if time is not None), default=None)


def seconds(times: Mapping[int, datetime], since: datetime | None) -> dict[int, float]:
    """Seconds since the beginning. A clock that was set back does not make the run go back."""
    out: dict[int, float] = {}
    latest = 0.0
    for iteration, time in times.items():
        latest = max(latest, (time - since).total_seconds() if since else 0.0)
        out[iteration] = latest
    return out


class Scale:
    """An axis of a run for whatever lies at an iteration: points, phases, marks."""

    def __init__(self, run_id: str, axis: str) -> None:
        self.axis = axis
        self.known = {} if axis == "iteration" else places(run_id, axis)
        self._order = list(self.known)

    def at(self, iteration: float) -> float | None:
        """The place of an iteration; between two that were logged it is interpolated, and beyond the last it stands there.
        None where nothing was logged.
        """
        if self.axis == "iteration":
            return iteration
        if not self._order:
            return 0.0 if iteration <= 0 else None
        after = bisect_left(self._order, iteration)
        if after == len(self._order):
            return self.known[self._order[-1]]
        right = self._order[after]
        if right == iteration:
            return self.known[right]
        # The start of a run lies at the origin of every axis, logged or not.
        left, low = (self._order[after - 1], self.known[self._order[after - 1]]) if after else (min(0, right), 0.0)
        if right == left or iteration <= left:
            return low
        return low + (self.known[right] - low) * (iteration - left) / (right - left)

    def all(self, iterations: Iterable[int]) -> dict[int, float]:
        """The places of those iterations that have one."""
        return {i: place for i in iterations if (place := self.at(i)) is not None}
