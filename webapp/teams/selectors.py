"""Reads about teams."""

from django.contrib.auth.models import AnonymousUser
from django.db.models import QuerySet
from django.http import Http404

from webapp.accounts.models import User
from webapp.teams.models import Membership, Role, Team
from webapp.teams.permissions import Capability, check


def team_for(user: User | AnonymousUser, slug: str, capability: Capability = Capability.VIEW) -> tuple[Team, Role]:
    """The team and the person's role in it; `Http404` outside it, `PermissionDenied` with too low a role."""
    if not isinstance(user, User):
        raise Http404
    membership = Membership.objects.select_related("team").filter(user=user, team__slug=slug).first()
    role = check(Role(membership.role) if membership else None, capability)
    assert membership is not None
    return membership.team, role


def memberships_of(team: Team) -> QuerySet[Membership]:
    """Everyone in the team, by name."""
    return team.memberships.select_related("user").order_by("user__display_name", "user__email")
