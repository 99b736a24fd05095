"""An installation without the demo is set up from the command line."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from webapp.accounts.models import User
from webapp.projects.models import Project
from webapp.teams.models import Membership

pytestmark = pytest.mark.django_db


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("newproject", *arguments, stdout=out)
    return out.getvalue()


def test_a_person_a_team_and_a_project_are_made_and_the_password_works() -> None:
    said = run("ada@example.org", "lab/countdown")
    project = Project.objects.get(slug="countdown")
    assert Membership.objects.get(team=project.team, user__email="ada@example.org").role == "owner"
    password = re.search(r"password (\S+)", said)
    assert password
    assert Client().login(username="ada@example.org", password=password[1])


def test_a_second_call_makes_only_what_is_missing() -> None:
    run("ada@example.org", "lab/countdown")
    assert "password" not in run("ada@example.org", "lab/parity")
    assert User.objects.count() == 1
    assert Project.objects.count() == 2


def test_a_malformed_address_is_refused_and_nothing_is_left() -> None:
    with pytest.raises(CommandError):
        run("ada@example.org", "Not A Slug/x")
    assert not User.objects.exists()
