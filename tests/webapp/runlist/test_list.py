"""The list of runs and the home page's bands."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client
from django.utils import timezone

from tests.webapp.making import claimed, evaluation, make_run, scalars, send
from webapp.projects.models import Project
from webapp.runlist.selectors import Filters, rows_of, runs_for
from webapp.runs.models import Run
from webapp.runs.services import add_attempt, finish
from webapp.runs.states import RunState

RUNS = "/p/lab/countdown/runs/"
HOME = "/p/lab/countdown/"
pytestmark = pytest.mark.django_db


def names(project: Project, query: str) -> list[str]:
    return [run.name for run in runs_for(project, Filters.of(QueryDict(query)))]


def with_accuracy(project: Project, name: str, value: float) -> Run:
    run = make_run(project, name=name)
    send(claimed(run), [scalars(1, **{"eval/accuracy": value})])
    return run


def test_runs_are_found_by_words_state_kind_and_method(project: Project) -> None:
    rl = {"kind": "rl", "algorithm": {"preset": "grpo"}}
    make_run(project, name="plain", config=rl, task="maze")
    make_run(project, name="steered", config=rl, methods=["sps"])
    make_run(project, name="other base", config={"kind": "rl", "algorithm": {"preset": "rloo"}})
    claimed(make_run(project, name="taken", config=rl))
    assert names(project, "q=maze") == ["plain"]
    assert names(project, "method=sps") == ["steered"]
    assert names(project, "method=rloo") == ["other base"]
    assert set(names(project, "method=grpo")) == {"plain", "taken"}
    assert names(project, "state=starting") == ["taken"]
    assert len(names(project, "state=active")) == 4
    assert names(project, "kind=sft") == []
    assert names(project, "q=pla+maze") == ["plain"]


def test_what_the_address_does_not_know_is_left_out(project: Project) -> None:
    make_run(project)
    assert names(project, "state=sleeping&kind=x&sort=colour&page=99") == ["a run"]


def test_runs_are_sorted_by_accuracy_with_those_without_one_last(project: Project) -> None:
    make_run(project, name="nothing yet")
    with_accuracy(project, "low", 0.1)
    with_accuracy(project, "high", 0.3)
    assert names(project, "sort=-accuracy") == ["high", "low", "nothing yet"]
    assert names(project, "sort=accuracy") == ["low", "high", "nothing yet"]


def test_a_row_shows_the_newest_validation_with_its_interval(project: Project) -> None:
    run = make_run(project)
    evaluation(run, 0, [(4, 0)] * 40)
    evaluation(run, 10, [(4, 4)] * 10 + [(4, 0)] * 30)
    evaluation(run, 10, [(4, 4)] * 40, name="test")
    (row,) = rows_of([run])
    assert row.evaluated_at == 10
    assert row.accuracy is not None
    assert row.accuracy.value == pytest.approx(0.25)
    assert row.accuracy.lo is not None
    assert row.accuracy.lo < 0.25
    assert row.accuracy.note == "few problems"


def ran(run: Run, *, seconds: int, ago: int) -> None:
    """An ended attempt that ran for `seconds`, starting `ago` seconds before now."""
    finish(claimed(run), to=RunState.STOPPED, exit_code=3, reason="")
    begin = timezone.now() - timedelta(seconds=ago)
    attempt = run.attempts.filter(number=Run.objects.get(pk=run.pk).attempt_number)
    attempt.update(started_at=begin, ended_at=begin + timedelta(seconds=seconds))


def test_the_duration_is_what_the_attempts_ran_and_no_waiting(project: Project) -> None:
    resumed, short = make_run(project, name="resumed"), make_run(project, name="short")
    ran(resumed, seconds=60, ago=9000)
    add_attempt(run=resumed)
    assert [row.duration for row in rows_of([resumed, make_run(project, name="queued")])] == [60.0, None]
    resumed.refresh_from_db()
    ran(resumed, seconds=30, ago=100)
    ran(short, seconds=80, ago=9000)
    assert [row.duration for row in rows_of([resumed, short])] == [90.0, 80.0]
    assert names(project, "sort=-duration") == ["resumed", "short", "queued"]


def test_the_page_says_why_a_number_is_missing(project: Project, client_of: Callable[[str], Client]) -> None:
    make_run(project)
    page = client_of("viewer").get(RUNS).content.decode()
    assert 'title="No validation yet">—' in page
    assert 'title="Not started">—' in page


def test_hundreds_of_runs_cost_as_many_queries_as_a_few(
    project: Project, client_of: Callable[[str], Client], django_assert_max_num_queries: Any
) -> None:
    for number in range(60):
        evaluation(make_run(project, name=f"run {number}"), 1, [(2, 1)] * 3)
    client = client_of("viewer")
    client.get(RUNS)
    with django_assert_max_num_queries(11):
        page = client.get(RUNS).content.decode()
    assert "1–50 of 60" in page
    with django_assert_max_num_queries(11):
        client.get(f"{RUNS}?q=run&state=active&method=grpo&sort=-accuracy&page=2")


def test_only_the_table_answers_when_it_is_asked_again(project: Project, client_of: Callable[[str], Client]) -> None:
    make_run(project)
    page = client_of("viewer").get(RUNS, headers={"HX-Request": "true", "HX-Target": "run-rows"}).content.decode()
    assert "<html" not in page
    assert "data-moving" in page


def test_runs_of_other_projects_are_not_listed(cast: Any, client_of: Callable[[str], Client]) -> None:
    make_run(cast.other_project, name="their secret")
    assert "their secret" not in client_of("owner").get(RUNS).content.decode()


def test_viewers_see_no_buttons_to_launch(project: Project, client_of: Callable[[str], Client]) -> None:
    make_run(project)
    assert "data-duplicate" not in client_of("viewer").get(RUNS).content.decode()
    assert "data-duplicate" in client_of("member").get(RUNS).content.decode()


def test_home_shows_what_failed_what_runs_and_what_finished(
    project: Project, client_of: Callable[[str], Client]
) -> None:
    for name, state, reason in (
        ("broken", RunState.FAILED, "The loss is NaN at iteration 3."),
        ("complete", RunState.FINISHED, "The run reached its budget."),
    ):
        finish(claimed(make_run(project, name=name)), to=state, exit_code=0, reason=reason, worker="w")
    make_run(project, name="waiting")
    page = client_of("member").get(HOME).content.decode()
    attention, running, finished = (page.index(f'id="band-{name}"') for name in ("attention", "running", "finished"))
    assert attention < page.index("The loss is NaN at iteration 3.") < running < page.index("waiting") < finished
    assert page.index("complete") > finished
    assert f"launch/?from={Run.objects.get(name='broken').pk}" in page


def test_old_failures_leave_home(project: Project, client_of: Callable[[str], Client]) -> None:
    run = make_run(project)
    finish(claimed(run), to=RunState.FAILED, exit_code=1, reason="Long ago.", worker="w")
    Run.objects.update(ended_at=timezone.now() - timedelta(days=8))
    assert "Long ago." not in client_of("member").get(HOME).content.decode()
