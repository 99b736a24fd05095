"""Who gets in: tokens, sessions, scopes, roles and places."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.conftest import Cast
from tests.webapp.api.calling import BASE, PROJECT, Caller, error
from tests.webapp.making import document
from tests.webapp.permissions.api_table import API_TABLE
from tests.webapp.permissions.table import Row
from webapp.accounts import selectors
from webapp.accounts.services import revoke_token
from webapp.api.base import SCOPES
from webapp.runs.models import Run
from webapp.teams.models import Membership, Role
from webapp.teams.permissions import Capability
from webapp.teams.services import remove_member, set_role

OPERATIONS = [row for row in API_TABLE if row.column.statuses["anonymous"] == 401]


def test_without_signing_in_one_is_told_how(client: Client, db: None) -> None:
    response = client.get(f"{BASE}/whoami")
    assert error(response) == (401, "not_authenticated")
    assert response["WWW-Authenticate"] == 'Bearer realm="unsqueeze"'


def test_a_token_speaks_for_its_person(cast: Cast) -> None:
    caller = Caller(cast["member"], "read", within="lab")
    body = caller.get(f"{BASE}/whoami").json()
    assert (body["name"], body["email"]) == ("Member", "member@example.org")
    assert (body["token"]["scopes"], body["token"]["within"]) == (["read"], "lab")
    assert "digest" not in body["token"]


def test_why_a_token_is_refused_has_a_code(cast: Cast, client: Client) -> None:
    caller = Caller(cast["member"])
    revoke_token(token=caller.token)
    response = caller.get(f"{BASE}/whoami")
    assert error(response) == (401, "revoked_token")
    assert response["WWW-Authenticate"] == 'Bearer realm="unsqueeze"'
    for header in ("Bearer nonsense", "Basic bWU6bWU=", "Bearer", "unsq_"):
        assert error(client.get(f"{BASE}/whoami", headers={"Authorization": header})) == (401, "invalid_token")


def test_a_header_that_is_refused_is_not_made_up_for_by_a_session(cast: Cast, client: Client) -> None:
    client.force_login(cast["owner"])
    response = client.get(f"{BASE}/whoami", headers={"Authorization": "Bearer nonsense"})
    assert error(response) == (401, "invalid_token")


def test_too_many_refused_tokens_have_to_wait(cast: Cast, client: Client) -> None:
    wrong = Caller(cast["member"]).secret[:-40] + "x" * 40
    for _ in range(selectors.LIMIT_ONE_TOKEN):
        client.get(f"{BASE}/whoami", headers={"Authorization": f"Bearer {wrong}"})
    response = client.get(f"{BASE}/whoami", headers={"Authorization": f"Bearer {wrong}"})
    assert error(response) == (429, "too_many_failures")
    assert 0 < int(response["Retry-After"]) <= 900


@pytest.mark.parametrize("path", ["whoami?token={}", "whoami?x=1&access_token={}", "projects/{}/x"])
def test_a_token_in_an_address_is_refused(path: str, cast: Cast) -> None:
    caller = Caller(cast["member"])
    assert error(caller.get(f"{BASE}/{path.format(caller.secret)}")) == (400, "token_in_address")


def test_a_browser_needs_its_csrf_token_to_change_something(cast: Cast) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast["member"])
    assert client.get(f"{BASE}/whoami").json()["token"] is None
    response = client.post(f"{PROJECT}/runs", {"config": document()}, content_type="application/json")
    assert error(response) == (403, "csrf_failed")
    client.get(reverse("api:tokens"))
    secret = client.cookies["unsqueeze_csrf"].value
    response = client.post(
        f"{PROJECT}/runs", {"config": document()}, content_type="application/json", headers={"X-CSRFToken": secret}
    )
    assert response.status_code == 201


NEEDS = {(row.route, row.method): row for row in OPERATIONS}


def _needed(row: Row) -> Capability:
    """From the statuses of the permission table: who may."""
    statuses = row.column.statuses
    if statuses["member"] == 403:
        return Capability.MANAGE
    if statuses["viewer"] == 403:
        edits = row.method == "patch" or row.route.startswith(("api:dataset", "api:checkpoint", "api:upload"))
        return Capability.EDIT if edits else Capability.LAUNCH
    return Capability.VIEW


@pytest.mark.parametrize("row", OPERATIONS, ids=str)
def test_each_operation_needs_its_scope_and_no_other(row: Row, cast: Cast) -> None:
    url = reverse(row.route, args=row.args(cast))
    needed = SCOPES[_needed(row)].value
    more = {"content_type": row.kind} if row.kind else {}

    def status(*scopes: str) -> Any:
        caller = Caller(cast["owner"], *scopes)
        return getattr(Client(), row.method)(
            url, row.data, headers={"Authorization": f"Bearer {caller.secret}"}, **more
        )

    others = [scope.value for scope in SCOPES.values() if scope != needed]
    refused = status(*others)
    assert error(refused) == (403, "insufficient_scope")
    assert refused.json()["error"]["details"] == {"scope": needed}
    assert f'scope="{needed}"' in refused["WWW-Authenticate"]
    assert status(needed).status_code == row.column.statuses["owner"]


def test_a_token_never_does_more_than_its_person_may_now(cast: Cast) -> None:
    caller = Caller(cast["member"])
    assert caller.post("runs", {"config": document()}).status_code == 201
    set_role(team=cast.team, user=cast["member"], role=Role.VIEWER)
    refused = caller.post("runs", {"config": document()})
    assert error(refused) == (403, "insufficient_role")
    assert "needs the role member" in refused.json()["error"]["message"]
    remove_member(team=cast.team, user=cast["member"])
    assert error(caller.get("runs")) == (404, "not_found")
    assert Run.objects.count() == 1


def test_a_token_for_one_place_finds_nothing_elsewhere(cast: Cast) -> None:
    Membership.objects.create(team=cast.other_team, user=cast["member"], role=Role.OWNER)
    everywhere = Caller(cast["member"])
    assert [team["slug"] for team in everywhere.get(f"{BASE}/teams").json()["results"]] == ["elsewhere", "lab"]
    assert len(everywhere.get(f"{BASE}/projects").json()["results"]) == 2
    team = Caller(cast["member"], within="lab")
    assert [one["slug"] for one in team.get(f"{BASE}/teams").json()["results"]] == ["lab"]
    assert [one["team"] for one in team.get(f"{BASE}/projects").json()["results"]] == ["lab"]
    assert error(team.get(f"{BASE}/projects/elsewhere/countdown")) == (404, "not_found")
    assert team.get("runs").status_code == 200
    project = Caller(cast["member"], within="elsewhere/countdown")
    assert project.get(f"{BASE}/teams").json()["results"] == []
    assert error(project.get(f"{BASE}/teams/elsewhere")) == (404, "not_found")
    assert error(project.get("runs")) == (404, "not_found")
    assert project.get(f"{BASE}/projects/elsewhere/countdown/runs").status_code == 200


def test_what_is_foreign_and_what_does_not_exist_look_the_same(cast: Cast) -> None:
    caller = Caller(cast["outsider"])
    there, nowhere = caller.get("runs"), caller.get(f"{BASE}/projects/no/where/runs")
    for response in (there, nowhere):
        assert error(response) == (404, "not_found")
    assert there.json()["error"].keys() == nowhere.json()["error"].keys()
    assert there.json()["error"]["message"] == nowhere.json()["error"]["message"]


def test_one_lists_and_revokes_only_ones_own_tokens(cast: Cast) -> None:
    mine, theirs = Caller(cast["member"]), Caller(cast["viewer"])
    assert [row["id"] for row in mine.get(f"{BASE}/tokens").json()["results"]] == [mine.token.public_id]
    assert error(mine("delete", f"{BASE}/tokens/{theirs.token.public_id}")) == (404, "not_found")
    assert mine("delete", f"{BASE}/tokens/{mine.token.public_id}").status_code == 204
    assert error(mine.get(f"{BASE}/whoami")) == (401, "revoked_token")


def test_below_api_what_does_not_exist_is_json(client: Client, db: None) -> None:
    for path in ("/api", "/api/", "/api/v1/", "/api/v1/nothing", "/api/v2/runs", f"{PROJECT}/runs/"):
        response = client.get(path)
        assert error(response) == (404, "not_found"), path
        assert response["Content-Type"] == "application/json"
