"""What each role may do: the one place that decides it.

Someone outside a team must not learn what exists in it: `require` raises `Http404` for them. A member whose role is
too low gets `PermissionDenied` (the 403 page), which names the role that is needed. Superusers have no way round:
access is by membership.
"""

from enum import StrEnum

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.http import Http404

from webapp.accounts.models import User
from webapp.teams.models import Membership, Role, Team


class Capability(StrEnum):
    """What can be asked for."""

    VIEW = "view"  # see everything in the team's projects
    LAUNCH = "launch"  # start, stop, resume and duplicate runs
    EDIT = "edit"  # name, tag, archive and delete what is in a project
    MANAGE = "manage"  # projects, people and settings of the team


CAPABILITIES: dict[Role, frozenset[Capability]] = {
    Role.VIEWER: frozenset({Capability.VIEW}),
    Role.MEMBER: frozenset({Capability.VIEW, Capability.LAUNCH, Capability.EDIT}),
    Role.ADMIN: frozenset(Capability),
    Role.OWNER: frozenset(Capability),
}


def role_in(user: User | AnonymousUser, team: Team) -> Role | None:
    """The person's role in the team, None outside it."""
    if not isinstance(user, User) or not user.is_active:
        return None
    role = Membership.objects.filter(user=user, team=team).values_list("role", flat=True).first()
    return Role(role) if role is not None else None


def allows(role: Role | None, capability: Capability) -> bool:
    """Whether the role includes the capability; no role includes none."""
    return role is not None and capability in CAPABILITIES[role]


def can(user: User | AnonymousUser, team: Team, capability: Capability) -> bool:
    """Whether the person may do this in the team."""
    return allows(role_in(user, team), capability)


def check(role: Role | None, capability: Capability) -> Role:
    """The role itself if it includes the capability; raises `Http404` without a role, `PermissionDenied` with too
    low a one.
    """
    if role is None:
        raise Http404
    if not allows(role, capability):
        lowest = next(other for other in Role if capability in CAPABILITIES[other])
        raise PermissionDenied(
            f"You are a {role.label.lower()} of this team; this needs the role {lowest.label.lower()}."
        )
    return role


def require(user: User | AnonymousUser, team: Team, capability: Capability) -> Role:
    """Like `check`, for a person."""
    return check(role_in(user, team), capability)
