"""What a trainer may know, and that what it must not tell stays where it is."""

from __future__ import annotations

import html
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from tests.conftest import Cast
from tests.webapp.api.calling import Caller, error
from tests.webapp.launch.conftest import Scenario
from tests.webapp.launch.test_supervisor import supervise
from tests.webapp.making import claimed, document, lines, make_run
from trainer.contract import drawn
from trainer.contract import events as ev
from trainer.contract.config import InvalidConfig
from webapp.launch.forms import LaunchForm
from webapp.launch.secrets import problems_with_secrets, redactor_of
from webapp.launch.services import cancel_run, launch_run, resume_run
from webapp.projects.models import Project
from webapp.runs.models import Run
from webapp.runs.selectors import log_tail
from webapp.runs.storage import attempt_uri, path_of
from webapp.teams.models import TeamSecret
from webapp.teams.secret_services import delete_secret, set_secret

TOKEN = "tok/en+with=every&thing 42"
PLANTED = {
    "UNSQUEEZE_DATABASE_URL": "postgresql://user:hidden@db/x",
    "UNSQUEEZE_SECRET_KEY": "hidden",
    "UNSQUEEZE_SECRET_KEY_FILE": "/run/hidden",
    "UNSQUEEZE_SECRETS_KEY": "hidden",
    "UNSQUEEZE_BROKER_URL": "redis://:hidden@host",
    "UNSQUEEZE_S3_SECRET_KEY": "hidden",
    "UNSQUEEZE_DATA": "/srv/hidden",
    "DATABASE_URL": "hidden",
    "DJANGO_SETTINGS_MODULE": "hidden",
    "DJANGO_SECRET_KEY": "hidden",
    "AWS_ACCESS_KEY_ID": "hidden",
    "AWS_SECRET_ACCESS_KEY": "hidden",
    "AWS_PROFILE": "hidden",
    "PGPASSWORD": "hidden",
    "PGPASSFILE": "/hidden",
    "REDIS_URL": "redis://:hidden@host",
    "CELERY_BROKER_URL": "hidden",
    "HF_TOKEN": "hidden",
    "OPENAI_API_KEY": "hidden",
    "SSH_AUTH_SOCK": "/hidden",
    "HTTPS_PROXY": "http://user:hidden@proxy",
}


@pytest.fixture
def token(cast: Cast) -> TeamSecret:
    return set_secret(team=cast.team, name="HF_TOKEN", value=TOKEN, user=cast["admin"])


def naming(*names: str) -> dict[str, Any]:
    """The configuration of a run without weights that names secrets."""
    return {"kind": "rl", "seed": 0, "policy": {"checkpoint": "base"}, "secrets": list(names)}


def seen_by(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path_of(attempt_uri(run.pk, 1, "seen.json")).read_text())
    return found


def test_the_trainer_sees_nothing_of_the_installation(
    project: Project,
    scenario: Scenario,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)
    scenario("environment")
    run = supervise(claimed(make_run(project)), tmp_path)
    seen = seen_by(run)
    assert "hidden" not in json.dumps(seen)
    assert not set(PLANTED) & set(seen["environ"])
    assert {name for name in seen["environ"] if name.startswith(("UNSQUEEZE_", "DJANGO_", "AWS_", "PG"))} == {
        "UNSQUEEZE_RUN_ID"
    }
    assert (seen["environ"]["UNSQUEEZE_RUN_ID"], seen["environ"]["OMP_NUM_THREADS"]) == (run.pk, "1")
    folder = path_of(attempt_uri(run.pk, 1)).parent.parent
    assert seen["cwd"] == str(folder)
    # Its own log and events, the pipe to its parent, nothing: no database, no socket.
    own = {name.removeprefix(f"{folder}/") for name in seen["fds"].values() if not name.startswith(("pipe:", "/proc/"))}
    assert own == {"/dev/null", "attempts/1/log.txt", "attempts/1/events.jsonl"}


def test_a_run_gets_the_secrets_that_it_names_and_no_others(
    cast: Cast,
    token: TeamSecret,
    scenario: Scenario,
    tmp_path: Path,
) -> None:
    set_secret(team=cast.team, name="JUDGE_KEY", value="another value", user=None)
    scenario("environment")
    run = supervise(claimed(make_run(cast.project, config=naming("HF_TOKEN"))), tmp_path)
    seen = seen_by(run)
    assert seen["environ"]["HF_TOKEN"] == TOKEN
    assert "JUDGE_KEY" not in seen["environ"]
    assert TOKEN not in json.dumps(seen["cmdline"])
    assert TOKEN not in path_of(attempt_uri(run.pk, 1)).parent.parent.joinpath("config.json").read_text()
    token.refresh_from_db()
    assert (token.last_run, token.last_project) == (run.pk, "countdown")


def test_a_secret_does_not_take_the_place_of_a_variable_of_ours(
    cast: Cast,
    scenario: Scenario,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("webapp.teams.secret_services.check_name", lambda name: None)
    set_secret(team=cast.team, name="PYTHONPATH", value="/tmp/elsewhere", user=None)
    scenario("environment")
    run = supervise(claimed(make_run(cast.project, config=naming("PYTHONPATH"))), tmp_path)
    assert seen_by(run)["environ"]["PYTHONPATH"] != "/tmp/elsewhere"


@pytest.mark.usefixtures("token")
def test_what_a_trainer_tells_of_its_secret_is_told_to_nobody(
    cast: Cast,
    scenario: Scenario,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    scenario("leak")
    run = supervise(claimed(make_run(cast.project, config=naming("HF_TOKEN"))), tmp_path)
    assert run.state == "failed"
    assert "cannot reach https://user:[secret HF_TOKEN]@host" in run.message
    assert {"token [secret HF_TOKEN]"} <= {line["message"] for line in log_tail(run)}
    assert run.stage == "[secret HF_TOKEN]"
    assert TOKEN not in everything_in_the_database()
    assert files_with(TOKEN, tmp_path) == []
    assert TOKEN not in caplog.text
    log = path_of(attempt_uri(run.pk, 1, "log.txt")).read_bytes()
    assert log.endswith(b"\nRuntimeError: " + b"*" * len(TOKEN) + b"\n")
    assert len(log) == (1 << 20) - 10 + len(TOKEN) + 1 + len(f"RuntimeError: {TOKEN}\n")


def everything_in_the_database() -> str:
    """All rows of all tables as text."""
    with connection.cursor() as cursor:
        rows = []
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            rows += cursor.fetchall()
    return repr(rows)


def files_with(value: str, folder: Path) -> list[Path]:
    """The files that hold the value."""
    return [path for path in folder.rglob("*") if path.is_file() and value.encode() in path.read_bytes()]


def test_a_run_whose_secret_is_gone_is_not_queued_again(cast: Cast, client_of: Callable[[str], Client]) -> None:
    run = make_run(cast.project, config=naming("HF_TOKEN"))
    cancel_run(run, cast["member"])
    text = "secrets.0: the team has no secret HF_TOKEN; it has none yet. An admin can add it in the team's settings"
    with pytest.raises(InvalidConfig) as refused:
        resume_run(run, cast["member"])
    assert str(refused.value) == text
    page = client_of("member").post(reverse("runpage:resume", args=run.url_args), follow=True)
    assert f"a run cannot be resumed: {text}." in html.unescape(page.content.decode())
    answer = Caller(cast["member"]).post(f"runs/{run.pk}/resume")
    assert error(answer) == (422, "invalid_config")
    assert answer.json()["error"]["fields"] == [{"path": "config.secrets.0", "message": text.partition(": ")[2]}]
    run.refresh_from_db()
    assert (run.state, run.attempt_number, run.attempts.count()) == ("cancelled", 1, 1)
    set_secret(team=cast.team, name="HF_TOKEN", value=TOKEN, user=None)
    assert Caller(cast["member"]).post(f"runs/{run.pk}/resume").json()["state"] == "queued"


@pytest.mark.usefixtures("token")
def test_what_a_trainer_elsewhere_tells_is_not_stored(cast: Cast) -> None:
    """It was given no secret, but may know one from elsewhere."""
    run = make_run(cast.project, config=naming("HF_TOKEN"))
    caller = Caller(cast["member"])
    held = caller.post(f"runs/{run.pk}/claim", {"worker": "elsewhere"}).json()
    events = [ev.Log(message=f"with {TOKEN}"), drawn.text(ev.Axes(iteration=1), "note", "x" * 199_990 + TOKEN)]
    more = {"X-Claim": held["claim"], "Content-Type": "application/x-ndjson"}
    assert caller("post", f"runs/{run.pk}/attempts/1/events", lines(run.pk, events), **more).status_code == 200
    bad = caller("post", f"runs/{run.pk}/attempts/1/events", f'{{"run": "{TOKEN}"}}\n'.encode(), **more)
    assert error(bad) == (400, "invalid")
    assert TOKEN not in bad.content.decode()
    more.pop("Content-Type")
    ended = caller.post(f"runs/{run.pk}/attempts/1/end", {"state": "failed", "message": f"no {TOKEN[:14]}"}, **more)
    assert ended.json()["message"] == "no [secret HF_TOKEN]"
    assert [line["message"] for line in log_tail(run)] == ["with [secret HF_TOKEN]"]
    database = everything_in_the_database()
    assert TOKEN not in database
    assert TOKEN[:10] not in database


@pytest.mark.usefixtures("token")
def test_a_log_that_is_quoted_shortened_is_quoted_without_the_secret(
    cast: Cast,
    scenario: Scenario,
    tmp_path: Path,
) -> None:
    """The end of the log that stands in a run's message begins anywhere, in the middle of a secret too."""
    scenario("leak-long")
    run = supervise(claimed(make_run(cast.project, config=naming("HF_TOKEN"))), tmp_path)
    assert run.state == "failed"
    assert run.message.endswith("\nthe end")
    assert TOKEN[-10:] not in run.message
    assert TOKEN[:10] not in everything_in_the_database()


@pytest.mark.usefixtures("token")
def test_a_deleted_secret_ends_the_resume_with_its_name(
    cast: Cast,
    scenario: Scenario,
    tmp_path: Path,
) -> None:
    scenario("leak")
    run = supervise(claimed(make_run(cast.project, config=naming("HF_TOKEN"))), tmp_path)
    resume_run(run, cast["member"])
    # While the run waits in the queue.
    delete_secret(team=cast.team, name="HF_TOKEN")
    assert not redactor_of(run.pk)
    again = supervise(claimed(Run.objects.get(pk=run.pk)), tmp_path)
    assert (again.state, again.attempt_number) == ("failed", 2)
    assert "the team Lab has no secret HF_TOKEN" in again.message
    assert not path_of(attempt_uri(run.pk, 2, "events.jsonl")).exists()


def test_a_secret_that_cannot_be_decrypted_says_which_key_is_missing(
    cast: Cast,
    token: TeamSecret,
    scenario: Scenario,
    tmp_path: Path,
    settings: Any,
) -> None:
    scenario("environment")
    settings.SECRETS_KEYS = ["another key that is long enough for it"]
    run = supervise(claimed(make_run(cast.project, config=naming("HF_TOKEN"))), tmp_path)
    assert run.state == "failed"
    assert f"it was encrypted with key {token.key}" in run.message
    assert "UNSQUEEZE_SECRETS_KEY" in run.message


# Launching


@pytest.mark.usefixtures("token")
def test_only_secrets_of_the_team_can_be_named(cast: Cast) -> None:
    run = launch_run(cast.project, cast["member"], document(secrets=["HF_TOKEN"]))
    assert run.config["secrets"] == ["HF_TOKEN"]
    with pytest.raises(InvalidConfig) as refused:
        launch_run(cast.project, cast["member"], document(secrets=["HF_TOKEN", "JUDGE_KEY"]))
    assert str(refused.value) == (
        "secrets.1: the team has no secret JUDGE_KEY; it has HF_TOKEN. An admin can add it in the team's settings"
    )
    with pytest.raises(InvalidConfig, match="no secret HF_TOKEN; it has none yet"):
        launch_run(cast.other_project, cast["outsider"], document(secrets=["HF_TOKEN"]))
    with pytest.raises(InvalidConfig, match=r"secrets\.0"):
        launch_run(cast.project, cast["member"], document(secrets=["hf-token"]))
    assert Run.objects.count() == 1


@pytest.mark.parametrize(
    "value",
    [
        "hf_" + "a1B2" * 8,
        "sk-proj-" + "abcd1234" * 4,
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_" + "a1B2c3" * 6,
        "xoxb-1234567890-abcdefghij",
        "https://user:hf_" + "a1B2" * 8 + "@huggingface.co/x",
    ],
)
def test_a_token_in_a_configuration_is_refused_without_repeating_it(cast: Cast, value: str) -> None:
    config = {"policy": {"checkpoint": value}, "methods": [{"slug": "x", "params": {value: 1, "url": [value]}}]}
    problems = problems_with_secrets(cast.team, config)
    assert [p.path for p in problems] == ["policy.checkpoint", "methods.0.params", "methods.0.params.url.0"]
    assert value not in repr(problems)
    assert "store it as a secret of the team" in problems[0].message
    with pytest.raises(InvalidConfig, match=r"policy\.checkpoint: holds what looks like an access token"):
        launch_run(cast.project, cast["member"], document(policy={"checkpoint": value}))
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    "value", ["checkpoints/1/a8cac2e867f082b7a685", "sk-short", "hf_home", "task-sk-learn-with-a-name"]
)
def test_ordinary_values_are_no_tokens(cast: Cast, value: str) -> None:
    assert problems_with_secrets(cast.team, {"policy": {"checkpoint": value}}) == []


@pytest.mark.usefixtures("token")
def test_the_form_offers_the_teams_secrets(cast: Cast, client_of: Callable[[str], Client]) -> None:
    at = reverse("launch:new", args=cast.project.url_args)
    page = client_of("member").get(at).content.decode()
    assert 'name="secrets" value="HF_TOKEN"' in page
    assert TOKEN not in page
    other = client_of("outsider").get(reverse("launch:new", args=cast.other_project.url_args)).content.decode()
    assert "HF_TOKEN" not in other
    form = LaunchForm.from_document(cast.project, document(secrets=["HF_TOKEN", "GONE_KEY"]))
    [slot] = [one for one in form.inputs if one.slot.path == "secrets"]
    assert slot.slot.field.choices == ("HF_TOKEN", "GONE_KEY")
    assert form.config is None
    assert [str(p) for p in form.problems] == [
        "secrets.1: the team has no secret GONE_KEY; it has HF_TOKEN. An admin can add it in the team's settings"
    ]
    assert slot.errors
