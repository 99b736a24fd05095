"""The decorator of every view below a project."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import BadRequest
from django.http import HttpRequest

from webapp.accounts.models import User
from webapp.projects.models import Project
from webapp.projects.selectors import Access, access_to
from webapp.teams.permissions import Capability


class ProjectRequest(HttpRequest):
    """What a view below a project receives: a signed-in person and a project that they may see."""

    user: User  # type: ignore[assignment]
    access: Access
    project: Project


def project_view(capability: Capability = Capability.VIEW) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Turns the URL's `team` and `project` into `request.project` and `request.access`, or answers 404 or 403; 400 for a
    query with a NUL.

    The view is called without those two arguments. Works for async views. What the view then looks up must start from
    `request.project`, so that another project's objects are 404:
    `get_object_or_404(request.project.runs, number=number)`.
    """

    def decorate(view: Callable[..., Any]) -> Callable[..., Any]:
        def enter(request: Any, team: str, project: str) -> None:
            if "%00" in request.META["QUERY_STRING"]:
                raise BadRequest("The query holds a NUL, which no database takes.")
            request.access = access_to(request.user, team=team, project=project, capability=capability)
            request.project = request.access.project

        if iscoroutinefunction(view):

            @wraps(view)
            async def async_wrapper(request: HttpRequest, *args: Any, team: str, project: str, **kwargs: Any) -> Any:
                request.user = await _user(request)
                await sync_to_async(enter)(request, team, project)
                return await view(request, *args, **kwargs)

            return async_wrapper

        @wraps(view)
        def wrapper(request: HttpRequest, *args: Any, team: str, project: str, **kwargs: Any) -> Any:
            enter(request, team, project)
            return view(request, *args, **kwargs)

        return wrapper

    return decorate


async def _user(request: HttpRequest) -> User | AnonymousUser:
    """The person, loaded, so that touching `request.user` in the async view asks no database."""
    return await request.auser()  # type: ignore[return-value]
