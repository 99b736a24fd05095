"""Every route of the application for every member of the cast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from tests.conftest import EVERYONE, Cast
from tests.webapp.permissions.api_table import API_TABLE
from tests.webapp.permissions.table import SIGN_IN, Row, in_team, nothing
from tests.webapp.permissions.table import TABLE as PAGES

TABLE = (*PAGES, *API_TABLE)


def _routes(patterns: list[URLPattern | URLResolver], namespaces: tuple[str, ...] = ()) -> Iterator[str]:
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            inner = (*namespaces, pattern.namespace) if pattern.namespace else namespaces
            yield from _routes(pattern.url_patterns, inner)
        else:
            yield ":".join((*namespaces, pattern.name or f"(no name) {pattern.pattern}"))


def test_every_route_has_a_row() -> None:
    missing = sorted(set(_routes(get_resolver().url_patterns)) - {row.route for row in TABLE})
    assert not missing, f"add rows for {missing} to tests/webapp/permissions/table.py"


def test_every_row_has_a_route() -> None:
    stale = sorted({row.route for row in TABLE} - set(_routes(get_resolver().url_patterns)))
    assert not stale, f"these routes are gone: {stale}"


@pytest.mark.parametrize("who", EVERYONE)
@pytest.mark.parametrize("row", TABLE, ids=str)
def test_status(row: Row, who: str, cast: Cast, client_of: Callable[[str], Client]) -> None:
    url = reverse(row.route, args=row.args(cast))
    response = _send(client_of(who), row, url)
    expected = row.column.statuses[who]
    if who == "anonymous" and expected == SIGN_IN and row.method != "get":
        expected = 403  # the page that says so and leads back to the form
    assert response.status_code == expected, f"{row} as {who}"
    if who == "anonymous" and response.status_code == 302:
        assert response["Location"].startswith(reverse("accounts:sign-in"))


READING = [row for row in PAGES if row.method == "get" and row.args not in (nothing, in_team)]


@pytest.mark.parametrize("row", READING, ids=str)
def test_a_query_that_no_database_takes_cannot_be_read(
    row: Row, cast: Cast, client_of: Callable[[str], Client]
) -> None:
    url = reverse(row.route, args=row.args(cast))
    for name in ("key", "kind", "from"):
        assert client_of("owner").get(url, {name: "a\0"}).status_code == 400


@pytest.mark.parametrize("row", [row for row in TABLE if row.args.__name__ == "in_project"], ids=str)
def test_an_address_that_mixes_two_teams_is_not_found(row: Row, cast: Cast, client_of: Callable[[str], Client]) -> None:
    url = reverse(row.route, args=(cast.other_team.slug, cast.project.slug))
    assert _send(client_of("owner"), row, url).status_code == 404


def _send(client: Client, row: Row, url: str) -> Any:
    more = {"content_type": row.kind} if row.kind else {}
    return getattr(client, row.method)(url, row.data, **more)


def test_outsiders_see_the_same_page_for_what_exists_and_what_does_not(
    cast: Cast, client_of: Callable[[str], Client]
) -> None:
    there = client_of("outsider").get(reverse("projects:home", args=cast.project.url_args))
    nowhere = client_of("outsider").get(reverse("projects:home", args=("nobody", "nothing")))
    assert (there.status_code, there.content) == (nowhere.status_code, nowhere.content)


def test_the_page_for_too_low_a_role_names_the_one_that_is_needed(
    cast: Cast, client_of: Callable[[str], Client]
) -> None:
    response = client_of("viewer").get(reverse("projects:new", args=[cast.team.slug]))
    assert response.status_code == 403
    assert "You are a viewer of this team; this needs the role admin." in response.content.decode()
