"""What the frame of every page shows: the switcher, the navigation, the primary button."""

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from webapp.core.nav import nav_items
from webapp.projects.models import Project
from webapp.projects.selectors import Access, visible_projects
from webapp.teams.models import Role, Team

LAST_PROJECT = "last_project"


@dataclass(frozen=True)
class Entry:
    """One link of the navigation."""

    label: str
    url: str
    icon: str
    key: str
    current: bool


class Frame:
    """Reads only what the template asks for, once a request, so that fragments cost nothing."""

    def __init__(self, request: HttpRequest) -> None:
        self.request = request

    @cached_property
    def projects(self) -> list[Project]:
        return list(visible_projects(self.request.user))

    @cached_property
    def teams(self) -> list[tuple[Team, list[Project]]]:
        return [(team, list(group)) for team, group in groupby(self.projects, key=lambda project: project.team)]

    @cached_property
    def access(self) -> Access | None:
        """This page's project; on a page without one, the project that was seen last."""
        here: Access | None = getattr(self.request, "access", None)
        if here is not None:
            return here
        last = self.request.session.get(LAST_PROJECT) if hasattr(self.request, "session") else None
        chosen = next((project for project in self.projects if project.pk == last), None)
        chosen = chosen or (self.projects[0] if self.projects else None)
        return Access(project=chosen, role=Role(chosen.my_role)) if chosen else None  # type: ignore[attr-defined]

    @cached_property
    def project(self) -> Project | None:
        return self.access.project if self.access else None

    def _entries(self, slot: str) -> list[Entry]:
        access = self.access
        if access is None:
            return []
        match = self.request.resolver_match
        # Only a page below the project is inside an entry's part: the form for a new project is not "Home".
        here = match.namespace if match and "project" in match.kwargs else ""
        return [
            Entry(
                label=item.label,
                url=reverse(item.route, args=access.project.url_args),
                icon=item.icon,
                key=item.key,
                current=here in item.namespaces,
            )
            for item in nav_items()
            if item.slot == slot and access.allows(item.capability)
        ]

    @cached_property
    def nav(self) -> list[Entry]:
        return self._entries("main")

    @cached_property
    def primary(self) -> Entry | None:
        return next(iter(self._entries("primary")), None)


def navigation(request: HttpRequest) -> dict[str, Any]:
    """`frame` for the base template; `access` and `project` where the page is below a project."""
    return {
        "frame": Frame(request),
        "access": getattr(request, "access", None),
        "project": getattr(request, "project", None),
    }
