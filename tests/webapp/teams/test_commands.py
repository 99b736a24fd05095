"""People join a team from the command line."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from tests.conftest import Cast
from webapp.accounts.models import User
from webapp.teams.models import Membership


def add(*arguments: str) -> str:
    out = StringIO()
    call_command("add_member", *arguments, stdout=out)
    return out.getvalue()


def test_somebody_new_gets_an_account_whose_password_works(cast: Cast) -> None:
    said = add("lab", "New@example.org", "member")
    assert Membership.objects.get(team=cast.team, user__email="new@example.org").role == "member"
    password = re.search(r"password (\S+)", said)
    assert password
    assert Client().login(username="new@example.org", password=password[1])


def test_somebody_known_keeps_their_password(cast: Cast) -> None:
    assert add("lab", cast["outsider"].email, "viewer") == f"{cast['outsider'].email} is viewer of lab\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("lap", "new@example.org", "member"), "no team 'lap'; teams here: .*lab"),
        (("lab", "new", "member"), "'new' is no e-mail address"),
        (("lab", "new@example.org", "boss"), "invalid choice: 'boss'"),
    ],
)
def test_what_is_wrong_is_said_and_nobody_is_made(cast: Cast, arguments: tuple[str, ...], said: str) -> None:
    before = User.objects.count()
    with pytest.raises(CommandError, match=said):
        add(*arguments)
    assert User.objects.count() == before


def test_a_member_is_not_added_twice(cast: Cast) -> None:
    with pytest.raises(CommandError, match="in the team already"):
        add("lab", cast["viewer"].email, "owner")
    assert Membership.objects.get(user=cast["viewer"], team=cast.team).role == "viewer"
