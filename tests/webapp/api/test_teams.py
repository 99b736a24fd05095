"""A team through the API: its members and its secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import Cast
from tests.webapp.api.calling import BASE, Caller, error
from webapp.accounts.models import User
from webapp.api.models import Answer
from webapp.teams.models import Role, TeamSecret
from webapp.teams.permissions import role_in
from webapp.teams.secret_services import reveal, set_secret
from webapp.teams.services import set_role

MEMBERS, SECRETS = f"{BASE}/teams/lab/members", f"{BASE}/teams/lab/secrets"
VALUE = "a value that nobody reads"


@pytest.fixture
def owner(cast: Cast) -> Caller:
    return Caller(cast["owner"])


@pytest.fixture
def admin(cast: Cast) -> Caller:
    return Caller(cast["admin"])


def address(caller: Caller, name: str) -> str:
    rows = caller.get(MEMBERS).json()["results"]
    return next(f"{MEMBERS}/{row['id']}" for row in rows if row["person"]["email"] == f"{name}@example.org")


def test_everyone_is_listed_in_the_order_of_joining(cast: Cast, owner: Caller) -> None:
    first = owner.get(f"{MEMBERS}?limit=3").json()
    rest = owner.get(f"{MEMBERS}?cursor={first['next_cursor']}").json()
    names = [row["person"]["name"] for page in (first, rest) for row in page["results"]]
    assert names == ["Owner", "Admin", "Member", "Viewer"]
    assert rest["results"][0]["role"] == "viewer"


def test_a_person_without_an_account_gets_one_and_signs_in_with_the_password_that_was_shown(
    cast: Cast, admin: Caller, client: Any
) -> None:
    made = admin.post(MEMBERS, {"email": " New@Example.org", "role": "member"})
    assert made.status_code == 201
    body = made.json()
    assert (body["person"], body["role"]) == ({"name": "new", "email": "new@example.org"}, "member")
    person = User.objects.get(email="new@example.org")
    assert person.must_choose_password
    assert client.login(username="new@example.org", password=body["one_time_password"])
    assert role_in(person, cast.team) == Role.MEMBER
    # It is kept nowhere, not even for sending again.
    assert not Answer.objects.exists()


def test_a_person_with_an_account_is_added_and_keeps_the_password(cast: Cast, admin: Caller) -> None:
    before = cast["outsider"].password
    body = admin.post(MEMBERS, {"email": "outsider@example.org", "role": "viewer"}).json()
    assert (body["one_time_password"], body["role"]) == ("", "viewer")
    cast["outsider"].refresh_from_db()
    assert cast["outsider"].password == before
    again = admin.post(MEMBERS, {"email": "outsider@example.org", "role": "member"})
    assert error(again) == (400, "invalid")
    assert again.json()["error"]["fields"] == [
        {"path": "email", "message": "outsider@example.org is in the team already."}
    ]
    assert role_in(cast["outsider"], cast.team) == Role.VIEWER


def test_what_is_no_address_or_no_role_makes_no_account(cast: Cast, admin: Caller) -> None:
    count = User.objects.count()
    for body in (
        {"email": "nobody", "role": "member"},
        {"email": "a@b.org", "role": "boss"},
        {"email": "a@b.org"},
        {"email": 7, "role": "member"},
    ):
        assert error(admin.post(MEMBERS, body)) == (400, "invalid")
    cast["outsider"].is_active = False
    cast["outsider"].save()
    closed = admin.post(MEMBERS, {"email": "outsider@example.org", "role": "viewer"})
    assert "was closed" in closed.json()["error"]["message"]
    assert User.objects.count() == count


def test_roles_are_changed_and_members_removed(cast: Cast, admin: Caller) -> None:
    at = address(admin, "viewer")
    assert admin("patch", at, {"role": "member"}).json()["role"] == "member"
    assert role_in(cast["viewer"], cast.team) == Role.MEMBER
    assert admin("delete", at).status_code == 204
    assert role_in(cast["viewer"], cast.team) is None
    assert error(admin("delete", at)) == (404, "not_found")


def test_only_an_owner_makes_and_removes_owners(cast: Cast, admin: Caller, owner: Caller) -> None:
    of_owner, of_admin = address(admin, "owner"), address(admin, "admin")
    for refused in (
        admin.post(MEMBERS, {"email": "boss@example.org", "role": "owner"}),
        admin("patch", of_admin, {"role": "owner"}),
        admin("patch", of_owner, {"role": "viewer"}),
        admin("delete", of_owner),
    ):
        assert error(refused) == (403, "insufficient_role")
        assert "only an owner" in refused.json()["error"]["message"]
    assert not User.objects.filter(email="boss@example.org").exists()
    assert owner("patch", of_admin, {"role": "owner"}).json()["role"] == "owner"
    assert owner("delete", of_owner).status_code == 204


def test_a_team_keeps_an_owner(cast: Cast, owner: Caller) -> None:
    at = address(owner, "owner")
    assert error(owner("patch", at, {"role": "admin"})) == (409, "last_owner")
    assert error(owner("delete", at)) == (409, "last_owner")
    assert role_in(cast["owner"], cast.team) == Role.OWNER


def test_a_membership_of_another_team_is_not_found(cast: Cast, owner: Caller) -> None:
    theirs = cast.other_team.memberships.get().pk
    assert error(owner("patch", f"{MEMBERS}/{theirs}", {"role": "viewer"})) == (404, "not_found")
    assert error(owner("delete", f"{MEMBERS}/{theirs}")) == (404, "not_found")
    assert role_in(cast["outsider"], cast.other_team) == Role.OWNER


# Secrets


def test_a_secret_is_stored_listed_and_deleted_and_its_value_never_comes_back(cast: Cast, admin: Caller) -> None:
    answers = [
        admin("put", f"{SECRETS}/HF_TOKEN", {"value": f" {VALUE}\n"}),
        admin.get(f"{SECRETS}/HF_TOKEN"),
        admin.get(SECRETS),
    ]
    assert reveal(team=cast.team, names=["HF_TOKEN"]) == {"HF_TOKEN": VALUE}
    for answer in answers:
        assert answer.status_code == 200
        assert VALUE not in answer.content.decode()
    [row] = answers[2].json()["results"]
    assert row == answers[1].json() == answers[0].json()
    assert (row["name"], row["changed_by"], row["readable"], row["last_run"]) == ("HF_TOKEN", "Admin", True, "")
    assert admin("delete", f"{SECRETS}/HF_TOKEN").status_code == 204
    assert error(admin("delete", f"{SECRETS}/HF_TOKEN")) == (404, "not_found")
    assert error(admin.get(f"{SECRETS}/HF_TOKEN")) == (404, "not_found")


@pytest.mark.parametrize(
    ("name", "value"), [("hf", VALUE), ("PATH", VALUE), ("HF_TOKEN", "short"), ("HF_TOKEN", 12345678)]
)
def test_a_name_or_value_that_cannot_be_one_is_refused(name: str, value: Any, cast: Cast, admin: Caller) -> None:
    assert error(admin("put", f"{SECRETS}/{name}", {"value": value})) == (400, "invalid")
    assert not TeamSecret.objects.exists()


def test_a_secret_of_another_team_is_not_found(cast: Cast, admin: Caller) -> None:
    set_secret(team=cast.other_team, name="HF_TOKEN", value=VALUE, user=None)
    assert error(admin.get(f"{SECRETS}/HF_TOKEN")) == (404, "not_found")
    assert error(admin("delete", f"{SECRETS}/HF_TOKEN")) == (404, "not_found")
    assert admin.get(SECRETS).json()["results"] == []


def test_a_secret_that_somebody_else_has_replaced_is_not_replaced_unseen(cast: Cast, admin: Caller) -> None:
    at = f"{SECRETS}/HF_TOKEN"
    seen = admin("put", at, {"value": VALUE})["ETag"]
    assert admin.get(at)["ETag"] == seen
    newer = Caller(cast["owner"])("put", at, {"value": "of somebody else"})["ETag"]
    assert newer != seen
    refused = admin("put", at, {"value": "mine again"}, **{"If-Match": seen})
    assert error(refused) == (412, "changed")
    assert refused.json()["error"]["details"] == {"etag": newer}
    assert error(admin("delete", at, **{"If-Match": seen})) == (412, "changed")
    assert reveal(team=cast.team, names=["HF_TOKEN"]) == {"HF_TOKEN": "of somebody else"}
    assert admin("put", at, {"value": "mine again"}, **{"If-Match": newer}).status_code == 200


def test_a_role_that_was_taken_away_no_longer_opens_secrets(cast: Cast, admin: Caller) -> None:
    set_role(team=cast.team, user=cast["admin"], role=Role.MEMBER)
    assert error(admin.get(SECRETS)) == (403, "insufficient_role")
    assert json.loads(admin.get(MEMBERS).content)["results"]
