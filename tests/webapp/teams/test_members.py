"""The page of a team's people."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from tests.conftest import Cast
from webapp.accounts.models import User
from webapp.teams.models import Membership

ClientOf = Callable[[str], Client]


def at(cast: Cast, who: str, act: str) -> str:
    return reverse(f"teams:{act}-member", args=[cast.team.slug, cast.team.memberships.get(user=cast[who]).pk])


def roles(cast: Cast) -> dict[str, str]:
    return {one.user.email.partition("@")[0]: one.role for one in Membership.objects.filter(team=cast.team)}


def test_somebody_with_an_account_comes_in(cast: Cast, client_of: ClientOf) -> None:
    page = reverse("teams:members", args=[cast.team.slug])
    sent = {"email": " Outsider@Example.org", "role": "viewer"}
    answer = client_of("admin").post(page, sent, follow=True)
    assert answer.redirect_chain == [(page, 302)]
    assert "Outsider is in the team now, as viewer." in answer.content.decode()
    assert roles(cast)["outsider"] == "viewer"
    again = client_of("admin").post(page, sent)
    assert again.status_code == 422
    assert "outsider@example.org is in the team already." in again.content.decode()
    assert 'Outsider@Example.org"' in again.content.decode()


def test_somebody_new_gets_an_account_whose_password_one_answer_alone_shows(cast: Cast, client_of: ClientOf) -> None:
    page, admin = reverse("teams:members", args=[cast.team.slug]), client_of("admin")
    answer = admin.post(page, {"email": "new@example.org", "role": "member"})
    found = re.search(r'see it again: <code class="nowrap">([^<]+)</code>', answer.content.decode())
    assert found is not None
    assert "no-store" in answer.headers["Cache-Control"]
    made = User.objects.get(email="new@example.org")
    assert made.check_password(found[1])
    assert made.must_choose_password
    assert found[1] not in admin.get(page).content.decode()


@pytest.mark.parametrize(
    ("who", "sent", "said"),
    [
        ("admin", {"email": "nobody", "role": "viewer"}, "is no e-mail address"),
        ("admin", {"email": "outsider@example.org", "role": "owner"}, "Select a valid choice"),
        ("owner", {"email": "", "role": "viewer"}, "This field is required"),
    ],
)
def test_what_cannot_be_is_said_at_the_form(
    who: str, sent: dict[str, str], said: str, cast: Cast, client_of: ClientOf
) -> None:
    before = roles(cast)
    answer = client_of(who).post(reverse("teams:members", args=[cast.team.slug]), sent)
    assert answer.status_code == 422
    assert said in answer.content.decode()
    assert roles(cast) == before


def test_roles_change_and_people_leave(cast: Cast, client_of: ClientOf) -> None:
    admin = client_of("admin")
    text = admin.post(at(cast, "viewer", "change"), {"role": "member", "was": "viewer"}, follow=True).content.decode()
    assert "The role of Viewer is member now." in text
    assert roles(cast)["viewer"] == "member"
    gone = at(cast, "viewer", "remove")
    assert "Viewer is no longer in the team." in admin.post(gone, follow=True).content.decode()
    assert "viewer" not in roles(cast)
    assert "not in the team any more" in admin.post(gone, follow=True).content.decode()


def test_a_page_that_is_out_of_date_changes_nothing(cast: Cast, client_of: ClientOf) -> None:
    client_of("owner").post(at(cast, "viewer", "change"), {"role": "admin", "was": "viewer"})
    old = {"role": "member", "was": "viewer"}
    text = client_of("admin").post(at(cast, "viewer", "change"), old, follow=True).content.decode()
    assert "Viewer was made admin since this page was opened; nothing was changed." in text
    assert roles(cast)["viewer"] == "admin"


@pytest.mark.parametrize(
    ("who", "whom", "act", "sent", "said"),
    [
        ("admin", "owner", "remove", {}, "only an owner makes or removes owners"),
        ("admin", "owner", "change", {"role": "viewer"}, "only an owner makes or removes owners"),
        ("admin", "viewer", "change", {"role": "owner"}, "only an owner makes or removes owners"),
        ("owner", "owner", "remove", {}, "has only one owner"),
        ("owner", "owner", "change", {"role": "viewer"}, "has only one owner"),
        ("owner", "viewer", "change", {"role": "king"}, "There is no role"),
    ],
)
def test_owners_are_protected(
    who: str, whom: str, act: str, sent: dict[str, str], said: str, cast: Cast, client_of: ClientOf
) -> None:
    before = roles(cast)
    assert said in client_of(who).post(at(cast, whom, act), sent, follow=True).content.decode()
    assert roles(cast) == before


def test_an_admin_is_offered_nothing_about_owners(cast: Cast, client_of: ClientOf) -> None:
    page = reverse("teams:members", args=[cast.team.slug])
    assert 'value="owner"' not in client_of("admin").get(page).content.decode()
    assert at(cast, "owner", "remove") not in client_of("admin").get(page).content.decode()
    assert at(cast, "owner", "remove") in client_of("owner").get(page).content.decode()


def test_whoever_steps_down_or_leaves_lands_on_a_page_that_opens(cast: Cast, client_of: ClientOf) -> None:
    admin = client_of("admin")
    stepped = admin.post(at(cast, "admin", "change"), {"role": "viewer", "was": "admin"}, follow=True)
    assert stepped.redirect_chain == [(reverse("teams:detail", args=[cast.team.slug]), 302)]
    assert stepped.status_code == 200
    client_of("owner").post(at(cast, "admin", "change"), {"role": "admin", "was": "viewer"})
    left = admin.post(at(cast, "admin", "remove"), follow=True)
    assert left.redirect_chain[0] == (reverse("projects:index"), 302)
    assert left.status_code == 200


def test_another_teams_people_are_out_of_reach(cast: Cast, client_of: ClientOf) -> None:
    theirs = cast.other_team.memberships.get().pk
    address = reverse("teams:remove-member", args=[cast.team.slug, theirs])
    assert "not in the team any more" in client_of("owner").post(address, follow=True).content.decode()
    assert cast.other_team.memberships.count() == 1
