"""The decorator of views below a project, on an async view."""

from collections.abc import Callable

import pytest
from asgiref.sync import async_to_sync
from django.http import JsonResponse
from django.test import AsyncClient
from django.urls import path

from tests.conftest import Cast
from webapp.config.urls import handler403, handler404
from webapp.config.urls import urlpatterns as real_urls
from webapp.projects.routes import in_project
from webapp.projects.views_base import ProjectRequest, project_view
from webapp.teams.permissions import Capability

__all__ = ["handler403", "handler404"]


@project_view(Capability.LAUNCH)
async def stream(request: ProjectRequest, number: int) -> JsonResponse:
    # Touching the person must not ask the database here: Django forbids that in async code.
    return JsonResponse({"project": request.project.name, "who": request.user.name, "n": number})


urlpatterns = [*real_urls, in_project(path("stream/<int:number>/", stream))]


@pytest.fixture
def fetch(cast: Cast, settings) -> Callable[[str, str], object]:
    settings.ROOT_URLCONF = __name__

    def get(who: str, team: str):
        client = AsyncClient()
        if who != "anonymous":
            client.force_login(cast[who])
        return async_to_sync(client.get)(f"/p/{team}/countdown/stream/7/")

    return get


def test_the_view_gets_the_project_and_the_loaded_person(fetch) -> None:
    assert fetch("member", "lab").json() == {"project": "Countdown", "who": "Member", "n": 7}


@pytest.mark.parametrize(
    ("who", "team", "status"),
    [("viewer", "lab", 403), ("outsider", "lab", 404), ("member", "elsewhere", 404), ("anonymous", "lab", 302)],
)
def test_others_do_not_get_in(fetch, who: str, team: str, status: int) -> None:
    assert fetch(who, team).status_code == status
