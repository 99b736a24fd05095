"""Points in, series out."""

from __future__ import annotations

import math

import pytest

from tests.webapp.making import claimed, make_run, scalars, send
from trainer.contract import events as ev
from webapp.metrics.models import Point, Series
from webapp.metrics.selectors import axes_at, delta, last_point, latest_values, load_series, series_of
from webapp.projects.models import Project
from webapp.runs.models import Run
from webapp.runs.selectors import cuts
from webapp.runs.services import add_attempt, finish
from webapp.runs.states import RunState


def resumed(run: Run, at: int) -> None:
    """A second attempt that has rewound to an iteration."""
    finish_and_resume(run)
    send(claimed(Run.objects.get(pk=run.pk)), [ev.Mark(mark="rewind", iteration=at)])


def finish_and_resume(run: Run) -> None:
    from webapp.runs.services import Claim

    attempt = run.attempts.get(number=Run.objects.get(pk=run.pk).attempt_number)
    held = Claim(attempt.pk, run.pk, attempt.number, attempt.claim)
    finish(held, to=RunState.STOPPED, exit_code=10, reason="", worker="w")
    add_attempt(run=run)


def test_what_was_sent_is_read_with_every_kind_of_number(project: Project) -> None:
    run = make_run(project)
    send(claimed(run), [scalars(1, a=0.5, b=math.nan), scalars(2, a=math.inf), scalars(3, a=-math.inf, b=2.0)])
    a, b = load_series(run, ["a", "b", "unknown"])
    assert (a.x, a.y, a.nonfinite) == ([1, 2, 3], [0.5, None, None], [(1, "inf"), (2, "-inf")])
    assert (b.iteration, b.y, b.nonfinite) == ([1, 3], [None, 2.0], [(0, "nan")])


def test_any_axis_is_an_x(project: Project) -> None:
    run = make_run(project)
    send(claimed(run), [scalars(1, a=0.5), scalars(2, a=0.7)])
    [series] = load_series(run, ["a"], axis="sampled_tokens")
    assert (series.x, series.iteration) == ([100, 200], [1, 2])
    assert axes_at(run)[2]["phase"] == "rl"
    with pytest.raises(KeyError, match="axis 'password' is unknown"):
        load_series(run, ["a"], axis="password")


def test_sending_again_overrides_under_a_new_live_number(project: Project) -> None:
    run = make_run(project)
    held = claimed(run)
    first = send(held, [scalars(1, a=0.5)]).live_seq
    second = send(held, [scalars(1, a=0.6)]).live_seq
    assert Point.objects.count() == 1
    assert second > first
    found = delta(run.pk, first, second)
    assert found is not None
    assert found["series"] == [{"key": "a", "iteration": [1], "y": [0.6], "nonfinite": []}]
    assert delta(run.pk, second, second) == {}


def test_the_overview_reads_the_newest_values_only(project: Project, django_assert_num_queries: object) -> None:
    run = make_run(project)
    send(claimed(run), [scalars(1, a=0.5, b=1.0), scalars(2, a=0.7, b=math.nan)])
    with django_assert_num_queries(1):  # type: ignore[operator]
        found = {s.key: (s.last_iteration, s.last_value, s.last_nonfinite) for s in series_of(run)}
    assert found == {"a": (2, 0.7, 0), "b": (2, None, 1)}
    assert latest_values([run], ["a"])[run.pk]["a"].last_value == 0.7


def test_an_older_iteration_does_not_become_the_newest(project: Project) -> None:
    run = make_run(project)
    held = claimed(run)
    send(held, [scalars(5, a=0.5)])
    send(held, [scalars(3, a=0.3)])
    assert Series.objects.get(key="a").last_value == 0.5


def test_a_rewind_hides_what_came_after_and_keeps_it_stored(project: Project) -> None:
    run = make_run(project)
    send(claimed(run), [scalars(i, a=float(i)) for i in range(1, 6)])
    resumed(run, 3)
    [series] = load_series(run, ["a"])
    assert series.y == [1.0, 2.0, 3.0]
    assert Point.objects.count() == 5
    newest = Series.objects.get(key="a")
    assert (newest.last_iteration, newest.last_value) == (3, 3.0)
    attempt = run.attempts.get(number=2)
    from webapp.runs.services import Claim

    send(Claim(attempt.pk, run.pk, 2, attempt.claim), [scalars(4, a=40.0)])
    [series] = load_series(run, ["a"])
    assert series.y == [1.0, 2.0, 3.0, 40.0]
    assert max(axes_at(run)) == 4
    assert Series.objects.get(key="a").last_value == 40.0


def test_a_rewind_to_before_the_start_hides_everything(project: Project) -> None:
    run = make_run(project)
    send(claimed(run), [scalars(0, a=1.0), scalars(1, a=2.0)])
    resumed(run, -1)
    assert load_series(run, ["a"]) == []
    assert list(series_of(run)) == []
    assert last_point(Series.objects.get(key="a").pk, cuts(run.pk)) is None


def test_two_rewinds_keep_the_earlier_cut(project: Project) -> None:
    run = make_run(project)
    send(claimed(run), [scalars(i, a=float(i)) for i in range(1, 10)])
    resumed(run, 3)
    resumed(run, 6)
    [series] = load_series(run, ["a"])
    assert series.y == [1.0, 2.0, 3.0]


def test_a_range_bounds_the_iterations(project: Project) -> None:
    run = make_run(project)
    send(claimed(run), [scalars(i, a=float(i)) for i in range(1, 10)])
    [series] = load_series(run, ["a"], begin=3, end=5)
    assert (series.iteration, series.total) == ([3, 4, 5], 3)


def test_too_much_news_is_not_sent(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from webapp.metrics import selectors

    monkeypatch.setattr(selectors, "DELTA_LIMIT", 5)
    run = make_run(project)
    send(claimed(run), [scalars(i, a=1.0, b=2.0) for i in range(1, 4)])
    assert delta(run.pk, 0, Run.objects.get(pk=run.pk).live_seq) is None


def test_deleting_a_run_takes_its_points_along(project: Project) -> None:
    run = make_run(project)
    send(claimed(run), [scalars(1, a=1.0)])
    run.delete()
    assert Point.objects.count() == 0
