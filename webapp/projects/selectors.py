"""Reads about projects, for one person, or for whoever administrates the server."""

from dataclasses import dataclass

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ValidationError
from django.db.models import F, QuerySet
from django.http import Http404

from webapp.accounts.models import User
from webapp.projects.models import Project
from webapp.teams.models import Role
from webapp.teams.permissions import CAPABILITIES, Capability, check


@dataclass(frozen=True)
class Access:
    """A project with what one person may do in it. Templates ask `access.launch`, `access.edit`, `access.manage`."""

    project: Project
    role: Role

    def allows(self, capability: Capability | str) -> bool:
        return Capability(capability) in CAPABILITIES[self.role]

    @property
    def launch(self) -> bool:
        return self.allows(Capability.LAUNCH)

    @property
    def edit(self) -> bool:
        return self.allows(Capability.EDIT)

    @property
    def manage(self) -> bool:
        return self.allows(Capability.MANAGE)


def visible_projects(user: User | AnonymousUser) -> QuerySet[Project]:
    """All projects of the person's teams, each with `.my_role`, by team and name."""
    if not isinstance(user, User) or not user.is_active:
        return Project.objects.none()
    return (
        Project.objects.filter(team__memberships__user=user)
        .annotate(my_role=F("team__memberships__role"))
        .select_related("team")
        .order_by("team__name", "name")
    )


def project_at(address: str) -> Project:
    """The project of TEAM/PROJECT, for commands on the server. Raises ValidationError that names those there are."""
    team, _, slug = address.partition("/")
    found = Project.objects.filter(team__slug=team, slug=slug).select_related("team").first()
    if found is None:
        known = ", ".join("/".join(p.url_args) for p in Project.objects.select_related("team")) or "none yet"
        raise ValidationError(f"no project {address!r}; known: {known}", code="unknown_project")
    return found


def access_to(
    user: User | AnonymousUser, *, team: str, project: str, capability: Capability = Capability.VIEW
) -> Access:
    """The project at this address; `Http404` for outsiders, `PermissionDenied` with too low a role."""
    found = visible_projects(user).filter(team__slug=team, slug=project).first()
    if found is None:
        raise Http404
    role = check(Role(found.my_role), capability)  # type: ignore[attr-defined]
    return Access(project=found, role=role)
