"""The frame of the pages, the home page and new projects."""

from collections.abc import Callable
from pathlib import Path

import pytest
from django.apps import apps
from django.test import Client

from tests.conftest import Cast
from webapp.core.nav import HomeBand, NavItem
from webapp.projects.models import Project
from webapp.projects.services import create_project

HOME = "/p/lab/countdown/"


def a_band(project: Project, user: object) -> dict[str, str]:
    return {"title": f"Band of {project}"}


def no_band(project: Project, user: object) -> None:
    return None


def test_an_empty_project_shows_the_first_steps(
    client_of: Callable[[str], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.projects.views.home_bands", list)
    assert "From a base model to a pass@k curve" in client_of("member").get(HOME).content.decode()


def test_bands_with_something_to_show_replace_the_first_steps(
    client_of: Callable[[str], Client], monkeypatch: pytest.MonkeyPatch, settings, tmp_path: Path
) -> None:
    (tmp_path / "_band.html").write_text("<h2>{{ band.title }}</h2>")
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [*settings.TEMPLATES[0]["DIRS"], tmp_path]}]
    bands = [
        HomeBand(source=f"{__name__}:no_band", template="missing.html"),
        HomeBand(source=f"{__name__}:a_band", template="_band.html"),
    ]
    monkeypatch.setattr("webapp.projects.views.home_bands", lambda: bands)
    page = client_of("member").get(HOME).content.decode()
    assert "<h2>Band of Countdown</h2>" in page
    assert "From a base model" not in page


def test_the_switcher_lists_own_projects_only(cast: Cast, client_of: Callable[[str], Client]) -> None:
    create_project(team=cast.team, slug="maze", name="Mazes")
    page = client_of("viewer").get(HOME).content.decode()
    assert "/p/lab/maze/" in page
    assert "/p/elsewhere/countdown/" not in page


def test_the_start_address_leads_to_the_project_seen_last(cast: Cast, client_of: Callable[[str], Client]) -> None:
    create_project(team=cast.team, slug="maze", name="Mazes")
    client = client_of("member")
    assert client.get("/")["Location"] == HOME
    client.get("/p/lab/maze/")
    assert client.get("/")["Location"] == "/p/lab/maze/"


def test_someone_without_a_team_learns_what_to_do(cast: Cast, client_of: Callable[[str], Client]) -> None:
    cast["viewer"].memberships.all().delete()
    response = client_of("viewer").get("/")
    assert response.status_code == 200
    assert "You are in no team with a project" in response.content.decode()


def test_entries_that_need_a_capability_are_hidden_from_lower_roles(
    client_of: Callable[[str], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    item = NavItem(label="Secret button", route="projects:home", capability="launch", slot="primary", order=0)
    monkeypatch.setattr(apps.get_app_config("core"), "nav", [item], raising=False)
    assert "Secret button" in client_of("member").get(HOME).content.decode()
    assert "Secret button" not in client_of("viewer").get(HOME).content.decode()


def test_the_entry_of_the_page_is_marked(client_of: Callable[[str], Client]) -> None:
    assert 'href="/p/lab/countdown/" aria-current="page"' in client_of("member").get(HOME).content.decode()


def test_the_frame_costs_a_fixed_number_of_queries(
    cast: Cast,
    client_of: Callable[[str], Client],
    django_assert_max_num_queries: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("webapp.projects.views.home_bands", list)
    for number in range(20):
        create_project(team=cast.team, slug=f"p{number}", name=f"P{number}")
    client = client_of("member")
    client.get(HOME)
    with django_assert_max_num_queries(4):
        client.get(HOME)


def test_an_address_that_is_taken_in_the_team_is_refused_at_the_form(
    cast: Cast, client_of: Callable[[str], Client]
) -> None:
    response = client_of("admin").post("/t/lab/projects/new", {"name": "Again", "slug": "countdown"})
    assert response.status_code == 200
    assert "This team has a project with this address already." in response.content.decode()


@pytest.mark.parametrize("slug", ["Upper", "-a", "a-", "a b", "a/b", ""])
def test_an_address_that_would_not_work_in_a_link_is_refused(
    slug: str, cast: Cast, client_of: Callable[[str], Client]
) -> None:
    assert client_of("admin").post("/t/lab/projects/new", {"name": "X", "slug": slug}).status_code == 200
    assert cast.team.projects.count() == 1


def test_the_same_address_is_free_in_another_team(cast: Cast) -> None:
    assert cast.project.slug == cast.other_project.slug
