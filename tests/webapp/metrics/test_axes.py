"""Every axis tells the truth across attempts: no point twice, none that was retired, never backwards."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.webapp.making import claimed, make_run, send
from trainer.contract import events as ev
from webapp.launch import ingest
from webapp.metrics.axes import AXES, WALL, Scale, places
from webapp.metrics.models import AxisRow
from webapp.metrics.selectors import delta, load_series
from webapp.projects.models import Project
from webapp.runs.models import Run
from webapp.runs.services import add_attempt, finish
from webapp.runs.states import RunState

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def step(iteration: int, loss: float, *, slow: float = 1.0) -> ev.Scalars:
    """A point whose every axis is a different multiple of its iteration; a slow attempt takes longer for the same work."""
    axes = ev.Axes(
        iteration=iteration, optimizer_step=2 * iteration, policy_version=iteration // 2, prompts=3 * iteration,
        rollouts=12 * iteration, sampled_tokens=100 * iteration, trained_tokens=90 * iteration,
        discarded_tokens=10 * iteration, evaluation_tokens=7 * iteration, device_seconds=slow * iteration,
    )  # fmt: skip
    return ev.Scalars(axes=axes, **ev.pack_numbers({"loss": loss}))


def timed(run: Run, times: dict[tuple[int, int], float]) -> None:
    """Sets when (attempt, iteration) happened, in seconds since BEGIN."""
    Run.objects.filter(pk=run.pk).update(started_at=BEGIN)
    for (attempt, iteration), seconds in times.items():
        rows = AxisRow.objects.filter(run=run, attempt=attempt, iteration=iteration)
        assert rows.update(time=BEGIN + timedelta(seconds=seconds)) == 1


@pytest.fixture
def resumed(project: Project) -> Run:
    """Attempt 1 reached iteration 5; attempt 2 went on from iteration 3 and reached 6."""
    run = make_run(project)
    held = claimed(run)
    send(held, [step(i, float(i)) for i in range(1, 6)])
    finish(held, to=RunState.FAILED, exit_code=1, reason="died")
    run.refresh_from_db()
    add_attempt(run=run, user=None)
    run.refresh_from_db()
    again = claimed(run)
    send(again, [ev.Mark(mark="rewind", iteration=3), *(step(i, 10.0 * i) for i in range(4, 7))])
    timed(run, {(1, i): 10.0 * i for i in range(1, 6)} | {(2, i): 1000.0 + 10 * i for i in range(4, 7)})
    return run


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        ("iteration", [1, 2, 3, 4, 5, 6]),
        ("optimizer_step", [2, 4, 6, 8, 10, 12]),
        ("policy_version", [0, 1, 1, 2, 2, 3]),
        ("prompts", [3, 6, 9, 12, 15, 18]),
        ("rollouts", [12, 24, 36, 48, 60, 72]),
        ("sampled_tokens", [100, 200, 300, 400, 500, 600]),
        ("trained_tokens", [90, 180, 270, 360, 450, 540]),
        ("discarded_tokens", [10, 20, 30, 40, 50, 60]),
        ("evaluation_tokens", [7, 14, 21, 28, 35, 42]),
        ("device_seconds", [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        (WALL, [10.0, 20.0, 30.0, 1040.0, 1050.0, 1060.0]),
    ],
)
def test_a_series_on_each_axis(resumed: Run, axis: str, expected: list[float]) -> None:
    [series] = load_series(resumed, ["loss"], axis=axis)
    assert series.x == expected
    assert series.y == [1.0, 2.0, 3.0, 40.0, 50.0, 60.0]


def test_every_axis_is_tested() -> None:
    cases: Any = test_a_series_on_each_axis.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert {axis for axis, _ in cases} == set(AXES)


def test_a_clock_that_was_set_back_does_not_make_the_run_go_back(resumed: Run) -> None:
    timed(resumed, {(2, 4): 5.0, (2, 5): 45.0})
    assert list(places(resumed.pk, WALL).values()) == [10.0, 20.0, 30.0, 30.0, 45.0, 1060.0]


def test_the_live_stream_carries_every_axis(resumed: Run) -> None:
    found = delta(resumed.pk, 0, Run.objects.get(pk=resumed.pk).live_seq)
    assert found is not None
    row = found["axes"][-1]
    assert {name: row[name] for name in AXES} == {
        "iteration": 6, "sampled_tokens": 600, "device_seconds": 6.0, "optimizer_step": 12, "policy_version": 3,
        "prompts": 18, "rollouts": 72, "trained_tokens": 540, "discarded_tokens": 60, "evaluation_tokens": 42,
        WALL: 1060.0,
    }  # fmt: skip
    assert row["phase"] == "rl"


def test_what_lies_between_two_logged_iterations_is_interpolated(project: Project) -> None:
    run = make_run(project)
    send(claimed(run), [step(i, 1.0) for i in (10, 20)])
    scale = Scale(run.pk, "sampled_tokens")
    assert [scale.at(i) for i in (0, 5, 10, 13, 20, 21)] == [0.0, 500.0, 1000, 1300.0, 2000, 2000]
    assert Scale(make_run(project).pk, "sampled_tokens").at(4) is None


def test_a_point_without_axes_is_left_out_where_it_has_no_place(project: Project) -> None:
    run = make_run(project)
    send(claimed(run), [step(1, 1.0), step(2, 2.0)])
    AxisRow.objects.filter(run=run, iteration=1).delete()
    [series] = load_series(run, ["loss"], axis="sampled_tokens")
    assert (series.x, series.y) == ([200], [2.0])
    assert load_series(run, ["loss"])[0].x == [1, 2]


def test_the_phase_and_the_policy_version_of_an_iteration_are_stored(project: Project) -> None:
    run = make_run(project)
    held = claimed(run)
    axes = ev.Axes(iteration=3, phase="irl", policy_version=9)
    ingest.store(held, ingest.parse(_line(run, ev.Scalars(axes=axes, **ev.pack_numbers({"loss": 1.0}))), 0))
    assert AxisRow.objects.values_list("phase", "policy_version").get() == ("irl", 9)


def _line(run: Run, event: ev.Event) -> bytes:
    from tests.webapp.making import lines

    return lines(run.pk, [event])
