"""Every error has the one shape, a code that is documented, and says what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import Cast
from tests.webapp.api.calling import BASE, PROJECT, Caller, error
from tests.webapp.making import document, make_run
from webapp.api import parsing
from webapp.api.errors import CODES
from webapp.runs.models import Run
from webapp.runs.services import request_stop


@pytest.fixture
def caller(cast: Cast) -> Caller:
    return Caller(cast["owner"])


def _fields(response: Any) -> dict[str, str]:
    return {one["path"]: one["message"] for one in response.json()["error"]["fields"]}


def test_the_shape(caller: Caller) -> None:
    response = caller.get("runs?limit=0")
    body = response.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"code", "message", "fields", "details", "request_id"}
    assert response["X-Request-ID"] == body["error"]["request_id"]
    assert len(body["error"]["request_id"]) == 16
    assert body["error"]["message"] == "limit: Ensure this value is greater than or equal to 1."


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=201", "limit=x", "limit=1&limit=2", "nothing=1", "kind=x", "state=x", "order=x", "search=%00"],
)
def test_a_wrong_query_is_refused_by_name(query: str, caller: Caller) -> None:
    response = caller.get(f"runs?{query}")
    assert error(response) == (400, "invalid")
    assert list(_fields(response)) == [query.partition("=")[0]]


@pytest.mark.parametrize("cursor", ["", "x", "a:b:c", "1" * 5000])
def test_a_cursor_that_is_none(cursor: str, caller: Caller) -> None:
    assert error(caller.get(f"runs?cursor={cursor}")) in ((400, "invalid_cursor"), (400, "invalid"))


def test_unknown_fields_of_a_body_are_refused(caller: Caller) -> None:
    response = caller.post("runs", {"config": document(), "Name": "x"})
    assert error(response) == (400, "invalid")
    assert _fields(response)["Name"].startswith("is not known here; known are: config, name, tags, notes")
    run = make_run(caller_project(caller))
    assert error(caller.post(f"runs/{run.pk}/stop", {"force": True})) == (400, "invalid")


def caller_project(caller: Caller) -> Any:
    from webapp.projects.models import Project

    return Project.objects.get(team__slug="lab")


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "config"),
        ({"config": []}, "config"),
        ({"config": None}, "config"),
        ({"config": {}, "name": 7}, "name"),
        ({"config": {}, "name": "x" * 121}, "name"),
        ({"config": {}, "tags": "x"}, "tags"),
        ({"config": {}, "tags": [1]}, "tags.0"),
        ({"config": {}, "parent": "nosuchrun"}, "parent"),
        ([], ""),
        ("x", ""),
    ],
)
def test_a_body_of_the_wrong_shape(body: Any, path: str, caller: Caller) -> None:
    response = caller("post", "runs", json.dumps(body).encode())
    assert error(response) == (400, "invalid")
    assert path in _fields(response)
    assert Run.objects.count() == 0


def test_everything_wrong_with_a_configuration_is_said_at_once(caller: Caller) -> None:
    wrong = document(budget={"iterations": 0}, task={"name": "parity", "problms": 3})
    for path in ("runs", "runs/validate"):
        response = caller.post(path, {"config": wrong})
        assert error(response) == (422, "invalid_config")
        assert set(_fields(response)) == {"config.budget.iterations", "config.task.problms"}
        assert "did you mean 'problems'?" in _fields(response)["config.task.problms"]
    assert Run.objects.count() == 0


@pytest.mark.parametrize("base", ["/etc", "runs/foreign/attempts/1/checkpoints/it-1", "../x", "base\n"])
def test_only_the_projects_own_checkpoints_can_be_a_base(base: str, caller: Caller) -> None:
    response = caller.post("runs", {"config": document(policy={"checkpoint": base})})
    assert error(response) == (422, "invalid_config")
    assert "no checkpoint of this project" in _fields(response)["config.policy.checkpoint"]


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"",
        b"\xff",
        b'{"config": NaN}',
        b'{"config": {"seed": 1e999}}',
        b'{"config": {"a": "\\u0000"}}',
        b'{"config": {"\\ud800": 1}}',
        b'{"name": "\\udfff"}',
        b'{"config": ' + b"[" * 200 + b"]" * 200 + b"}",
        b'{"config": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"config": {"seed": ' + b"9" * 5000 + b"}}",
    ],
    ids=range(11),
)
def test_what_is_no_json_that_can_be_stored(data: bytes, caller: Caller) -> None:
    response = caller("post", "runs", data)
    assert error(response) == ((400, "malformed") if data else (400, "invalid"))


@pytest.mark.parametrize("seed", [2**63, 10**30, -1])
def test_a_number_that_no_column_holds(seed: int, caller: Caller) -> None:
    response = caller.post("runs", {"config": document(seed=seed)})
    assert error(response) == (422, "invalid_config")
    assert "config.seed" in _fields(response)


def test_a_body_that_is_too_large_is_not_read(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "LARGEST_JSON", 100)
    response = caller.post("runs", {"notes": "x" * 100})
    assert error(response) == (413, "too_large")
    assert "100 bytes" in response.json()["error"]["message"]


def test_other_content_types_and_methods(caller: Caller) -> None:
    response = caller("post", "runs", b"a=1", **{"Content-Type": "application/x-www-form-urlencoded"})
    assert error(response) == (415, "unsupported_media_type")
    response = caller("delete", "runs")
    assert error(response) == (405, "method_not_allowed")
    assert response["Allow"] == "GET, HEAD, POST"
    assert error(caller("options", "runs"))[0] == 405


def test_the_page_of_the_operations_refuses_other_methods_as_they_do(caller: Caller) -> None:
    assert caller.get("/api/v1/docs").status_code in (200, 302)
    for method in ("post", "put", "patch", "delete", "options"):
        response = caller(method, "/api/v1/docs")
        assert error(response) == (405, "method_not_allowed")
        assert response["Allow"] == "GET, HEAD"


def test_what_the_state_machine_does_not_allow(caller: Caller) -> None:
    run = make_run(caller_project(caller))
    response = caller.post(f"runs/{run.pk}/resume")
    assert error(response) == (409, "bad_transition")
    assert response.json()["error"]["details"] == {
        "state": "queued", "wanted": "queued", "allowed": ["cancelled", "starting"]
    }  # fmt: skip
    request_stop(run=run)
    response = caller.post(f"runs/{run.pk}/stop")
    assert response.json()["error"]["details"]["state"] == "cancelled"


def test_huge_numbers_in_addresses_are_not_found(caller: Caller) -> None:
    run = make_run(caller_project(caller))
    for path in (
        f"runs/{run.pk}/evaluations/{10**30}",
        f"checkpoints/{2**63}",
        f"runs/{run.pk}/rollouts/groups/{'9' * 4400}",
    ):
        assert error(caller.get(path)) == (404, "not_found")


def test_a_mistake_of_the_server_says_nothing_of_its_inside(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the secret is 42")

    monkeypatch.setattr("webapp.api.views.people.visible_projects", broken)
    caller.client.raise_request_exception = False
    response = caller.get(f"{BASE}/projects")
    assert error(response) == (500, "server_error")
    assert "42" not in response.content.decode()
    assert response.json()["error"]["request_id"] in caplog.text
    assert "the secret is 42" in caplog.text


def test_a_database_that_is_away(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError

    def away(*_: Any, **__: Any) -> None:
        raise OperationalError

    monkeypatch.setattr("webapp.api.views.people.visible_projects", away)
    caller.client.raise_request_exception = False
    assert error(caller.get(f"{BASE}/projects")) == (503, "unavailable")


def test_every_code_has_one_status_and_a_meaning() -> None:
    assert all(400 <= status < 600 and text.endswith(".") for status, text in CODES.values())
    assert PROJECT.startswith(BASE)
