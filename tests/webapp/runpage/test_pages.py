"""What the run's pages show, in each state, and what their buttons do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from tests.conftest import Cast
from tests.webapp.making import claimed, evaluation, evaluation_event, make_run, scalars, send
from trainer.contract import events as ev
from webapp.projects.models import Project
from webapp.runs.models import Run
from webapp.runs.services import finish
from webapp.runs.states import RunState

PAGES = ("overview", "squeezing", "rollouts", "evaluations", "config")
ATTACK = "<script>alert(1)</script>"


@pytest.fixture
def client(client_of: Callable[[str], Client]) -> Client:
    return client_of("member")


def page(client: Client, run: Run, name: str = "overview", **query: str) -> str:
    response = client.get(reverse(f"runpage:{name}", args=run.url_args), query)
    assert response.status_code == 200
    return response.content.decode()


@pytest.mark.parametrize("name", PAGES)
def test_a_run_without_any_data_has_every_page(name: str, client: Client, project: Project) -> None:
    assert "a run" in page(client, make_run(project), name)


def test_empty_pages_say_what_will_be_there(client: Client, project: Project) -> None:
    run = make_run(project)
    assert "No rollouts yet" in page(client, run, "rollouts")
    assert "No evaluation yet" in page(client, run, "evaluations")
    assert "There is no evaluation yet." in page(client, run, "squeezing")
    assert "No verdict yet" in page(client, run)


@pytest.mark.parametrize("name", PAGES)
def test_names_are_shown_as_text(name: str, client: Client, project: Project) -> None:
    run = make_run(project, name=ATTACK, task="countdown", notes=ATTACK)
    text = page(client, run, name)
    assert ATTACK not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_logs_metric_names_and_config_values_are_shown_as_text(client: Client, project: Project) -> None:
    run = make_run(project, config={"kind": "rl", "policy": {"checkpoint": ATTACK}, ATTACK: [{ATTACK: ATTACK}]})
    send(claimed(run), [ev.Log(message=ATTACK), scalars(1, **{ATTACK: 1.0})])
    for name in ("overview", "config"):
        assert ATTACK not in page(client, run, name)
    part = client.get(reverse("runpage:part", args=(*run.url_args, "other")))
    assert ATTACK not in part.content.decode()


def test_people_who_may_launch_see_the_buttons_of_the_state(
    client_of: Callable[[str], Client], project: Project
) -> None:
    run = make_run(project)
    assert "Cancel</button>" in page(client_of("member"), run)
    viewer = page(client_of("viewer"), run)
    assert "Cancel</button>" not in viewer
    assert "Duplicate" not in viewer
    held = claimed(run)
    assert "Stop</button>" in page(client_of("member"), run)
    finish(held, to=RunState.FAILED, exit_code=1, reason="The loss was not finite.", worker="w")
    failed = page(client_of("member"), run)
    assert "Resume</button>" in failed
    assert "Stop</button>" not in failed
    assert "The loss was not finite." in failed


def test_stopping_a_run_that_is_over_changes_nothing_and_says_so(client: Client, project: Project) -> None:
    run = make_run(project)
    finish(claimed(run), to=RunState.FINISHED, exit_code=0, reason="", worker="w")
    answer = client.post(reverse("runpage:stop", args=run.url_args), follow=True)
    assert "is over already (finished)" in answer.content.decode()
    run.refresh_from_db()
    assert run.state == RunState.FINISHED


def test_stop_and_resume_move_the_run(
    client: Client, project: Project, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Callable
) -> None:
    sent: list[tuple[int, str]] = []
    monkeypatch.setattr("webapp.launch.services._send", lambda *message: sent.append(message))
    run = make_run(project)
    client.post(reverse("runpage:stop", args=run.url_args))
    run.refresh_from_db()
    assert run.state == RunState.CANCELLED
    with django_capture_on_commit_callbacks(execute=True):
        client.post(reverse("runpage:resume", args=run.url_args))
    run.refresh_from_db()
    assert (run.state, run.attempt_number) == (RunState.QUEUED, 2)
    assert sent == [(run.attempts.get(number=2).pk, "default")]


def test_buttons_want_a_post(client: Client, project: Project) -> None:
    run = make_run(project)
    assert client.get(reverse("runpage:stop", args=run.url_args)).status_code == 405


def test_another_projects_run_is_not_found(cast: Cast, client: Client) -> None:
    run = make_run(cast.other_project)
    for name in PAGES:
        assert client.get(reverse(f"runpage:{name}", args=(*cast.project.url_args, run.pk))).status_code == 404


def test_the_verdict_names_its_intervals_and_the_number_of_seeds(client: Client, project: Project) -> None:
    run = make_run(project)
    evaluation(run, 0, [(16, 8)] * 20 + [(16, 1)] * 100)
    evaluation(run, 9, [(16, 16)] * 60 + [(16, 0)] * 60, weights="later")
    text = page(client, run)
    assert 'data-kind="squeezing"' in text
    assert "one seed, 120 problems" in text


def test_the_evaluations_page_shows_intervals_and_reuse(client: Client, project: Project) -> None:
    run = make_run(project)
    other = make_run(project, name="measured it")
    source = ev.Source(run=other.pk, attempt=2, iteration=7)
    evaluation(run, 0, [(4, 1)] * 60 + [(4, 3)] * 60, reused=source)
    text = page(client, run, "evaluations")
    assert f'<a href="{other.get_absolute_url()}evaluations">measured it</a>, iteration 7' in text
    assert "0.500 <span" in text
    assert "reused" in text
    # No entropy was sent: a dash with its reason, never a zero.
    assert 'title="The sampler gave no entropy">—</span>' in text


def test_the_config_page_has_the_history_and_the_download(client: Client, project: Project) -> None:
    run = make_run(project, config={"kind": "rl", "seed": 0, "policy": {"checkpoint": None}, "list": [1, 2]})
    text = page(client, run, "config")
    assert "Launched." in text
    answer = client.get(reverse("runpage:config-file", args=run.url_args))
    assert answer.json() == run.config
    assert answer["Content-Disposition"] == f'attachment; filename="{run.pk}.json"'


def test_the_overview_reads_no_point(client: Client, project: Project, django_assert_max_num_queries: Callable) -> None:
    run = make_run(project)
    held = claimed(run)
    send(held, [scalars(i, **{f"m{k}": float(i) for k in range(60)}) for i in range(5)])
    send(held, [evaluation_event(0, [(4, 1)] * 3)])
    page(client, run)
    with django_assert_max_num_queries(22) as queries:
        page(client, run)
    assert not [q["sql"] for q in queries.captured_queries if "metrics_point" in q["sql"]]


def test_a_part_that_does_not_exist_is_not_found(client: Client, project: Project) -> None:
    assert client.get(reverse("runpage:part", args=(*make_run(project).url_args, "nothing"))).status_code == 404


def test_a_run_of_a_newer_release_is_shown_and_says_why_it_cannot_go_on(client: Client, project: Project) -> None:
    run = make_run(project, config={"schema_version": 3, "release": "2.0", "kind": "rl", "seed": 0, "policy": {}})
    assert "version 3" in page(client, run, "config")
    assert "Use Unsqueeze 2.0, which wrote it" in page(client, run, "config")
    finish(claimed(run), to=RunState.FAILED, exit_code=1, reason="died")
    client.post(reverse("runpage:resume", args=run.url_args))
    run.refresh_from_db()
    assert (run.state, run.attempt_number) == (RunState.FAILED, 1)
    assert "cannot be resumed: schema_version" in page(client, run, "config")
    form = client.get(reverse("launch:new", args=project.url_args), {"from": run.pk}).content.decode()
    assert "version 3" in form


def test_evaluations_on_two_sets_are_never_silently_one_curve(client: Client, project: Project) -> None:
    run = make_run(project)
    evaluation(run, 0, [(4, 1)] * 40)
    assert "different sets" not in page(client, run, "overview")
    evaluation(run, 5, [(8, 1)] * 30, weights="x")
    for tab in ("overview", "evaluations"):
        text = page(client, run, tab)
        assert "The validation evaluations of this run are on 2 different sets." in text
        assert "change their meaning at iteration 5" in text
        assert "samples a problem 8 instead of 4; 30 problems, 30 of them shared" in text
