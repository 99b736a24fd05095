"""Reads about teams."""

from django.contrib.auth.models import AnonymousUser
from django.db.models import F, QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404

from webapp.accounts.models import User
from webapp.teams.models import Membership, Role, Team, TeamSecret
from webapp.teams.permissions import Capability, check


def team_for(user: User | AnonymousUser, slug: str, capability: Capability = Capability.VIEW) -> tuple[Team, Role]:
    """The team and the person's role in it; `Http404` outside it, `PermissionDenied` with too low a role."""
    if not isinstance(user, User):
        raise Http404
    membership = Membership.objects.select_related("team").filter(user=user, team__slug=slug).first()
    role = check(Role(membership.role) if membership else None, capability)
    assert membership is not None
    return membership.team, role


def teams_of(user: User) -> QuerySet[Team]:
    """The person's teams, each with `.my_role`, by name."""
    return Team.objects.filter(memberships__user=user).annotate(my_role=F("memberships__role")).order_by("name", "pk")


def memberships_of(team: Team) -> QuerySet[Membership]:
    """Everyone in the team, by name."""
    return team.memberships.select_related("user").order_by("user__display_name", "user__email")


def membership_in(team: Team, membership_id: int) -> Membership:
    """One of the team's memberships; Http404 for any other."""
    return get_object_or_404(team.memberships.select_related("user", "team"), pk=membership_id)


def secret_in(team: Team, name: str) -> TeamSecret:
    """One of the team's secrets, without its value; Http404 for any other."""
    return get_object_or_404(secrets_of(team), name=name)


def secrets_of(team: Team) -> QuerySet[TeamSecret]:
    """The team's secrets by name; their values are not readable from here."""
    return team.secrets.select_related("created_by", "changed_by").order_by("name")


def secret_names(team: Team) -> list[str]:
    """What runs of the team may name."""
    return list(team.secrets.order_by("name").values_list("name", flat=True))
