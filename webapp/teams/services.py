"""Writes about teams."""

from django.core.exceptions import ValidationError
from django.db import transaction

from webapp.accounts.models import User
from webapp.teams.models import Membership, Role, Team


@transaction.atomic
def create_team(*, slug: str, name: str, owner: User) -> Team:
    """A team with its first owner."""
    team = Team(slug=slug, name=name)
    team.full_clean()
    team.save()
    Membership.objects.create(team=team, user=owner, role=Role.OWNER)
    return team


@transaction.atomic
def set_role(*, team: Team, user: User, role: Role) -> Membership:
    """Adds the person or changes their role; a team keeps at least one owner."""
    current = Membership.objects.select_for_update().filter(team=team, user=user).first()
    if current is not None and current.role == Role.OWNER and role != Role.OWNER:
        _keep_an_owner(team)
    membership, _made = Membership.objects.update_or_create(team=team, user=user, defaults={"role": role})
    return membership


@transaction.atomic
def remove_member(*, team: Team, user: User) -> None:
    """Takes the person out of the team; a team keeps at least one owner."""
    current = Membership.objects.select_for_update().get(team=team, user=user)
    if current.role == Role.OWNER:
        _keep_an_owner(team)
    current.delete()


def _keep_an_owner(team: Team) -> None:
    owners = Membership.objects.select_for_update().filter(team=team, role=Role.OWNER)
    if len(owners) == 1:
        raise ValidationError(f"{team} has only one owner. Make someone else an owner first.", code="last_owner")
