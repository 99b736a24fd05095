"""The cast: a team with one person of each role, someone of another team, and nobody.

`cast` holds all of them; `client_of(role)` gives a signed-in browser for one. Both teams have a project with the same
address, so that a mix-up between them shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django.test import Client

    from webapp.accounts.models import User
    from webapp.projects.models import Project
    from webapp.teams.models import Team

ROLES = ("owner", "admin", "member", "viewer")
EVERYONE = (*ROLES, "outsider", "anonymous")
PASSWORD = "correct horse battery"


@dataclass(frozen=True)
class Cast:
    """`people` by name: the four roles of `team`, and the outsider, who owns `other_team`."""

    team: Team
    project: Project
    people: dict[str, User]
    other_team: Team
    other_project: Project

    def __getitem__(self, name: str) -> User:
        return self.people[name]


@pytest.fixture
def cast(db: None) -> Cast:
    from webapp.accounts.models import User
    from webapp.projects.services import create_project
    from webapp.teams.models import Role
    from webapp.teams.services import create_team, set_role

    people = {
        name: User.objects.create_user(f"{name}@example.org", PASSWORD, display_name=name.capitalize())
        for name in (*ROLES, "outsider")
    }
    team = create_team(slug="lab", name="Lab", owner=people["owner"])
    for name in ROLES[1:]:
        set_role(team=team, user=people[name], role=Role(name))
    other_team = create_team(slug="elsewhere", name="Elsewhere", owner=people["outsider"])
    return Cast(
        team=team,
        project=create_project(team=team, slug="countdown", name="Countdown"),
        people=people,
        other_team=other_team,
        other_project=create_project(team=other_team, slug="countdown", name="Countdown"),
    )


@pytest.fixture
def client_of(cast: Cast) -> Callable[[str], Client]:
    from django.test import Client

    def make(name: str) -> Client:
        client = Client()
        if name != "anonymous":
            client.force_login(cast[name])
        return client

    return make


@pytest.fixture
def project(cast: Cast) -> Project:
    return cast.project


@pytest.fixture
def team(cast: Cast) -> Team:
    return cast.team


def _person(name: str) -> Callable[[Cast], User]:
    def fixture(cast: Cast) -> User:
        return cast[name]

    return pytest.fixture(fixture)


owner = _person("owner")
admin = _person("admin")
member = _person("member")
viewer = _person("viewer")
outsider = _person("outsider")
