"""Writes about teams."""

from django.core.exceptions import PermissionDenied, ValidationError
from django.core.validators import validate_email
from django.db import transaction

from webapp.accounts.models import User
from webapp.accounts.services import create_user_with_one_time_password
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


# What a member does with the team's people; `by` is that member's role.


@transaction.atomic
def add_member(*, team: Team, by: Role, email: str, role: Role) -> tuple[Membership, str]:
    """Takes a person into the team. Someone without an account gets one, with a password that is shown once (else it is
    empty). Raises ValidationError, and PermissionDenied where an owner is needed.
    """
    _may(by, role)
    address = email.strip().lower()
    try:
        validate_email(address)
    except ValidationError as error:
        raise ValidationError({"email": f"{email!r} is no e-mail address."}) from error
    # Of two who add the same person, the second finds the first one's row.
    Team.objects.select_for_update().get(pk=team.pk)
    user = User.objects.filter(email=address).first()
    password = ""
    if user is None:
        user, password = create_user_with_one_time_password(address)
    elif not user.is_active:
        raise ValidationError({"email": f"The account of {address} was closed."})
    elif team.memberships.filter(user=user).exists():
        raise ValidationError({"email": f"{address} is in the team already."})
    return Membership.objects.create(team=team, user=user, role=role), password


@transaction.atomic
def change_member(*, membership: Membership, by: Role, role: Role) -> Membership:
    """Gives a member another role. Raises ValidationError for the last owner, PermissionDenied where an owner is needed."""
    _may(by, role, Role(membership.role))
    changed = set_role(team=membership.team, user=membership.user, role=role)
    changed.user = membership.user
    return changed


@transaction.atomic
def expel_member(*, membership: Membership, by: Role) -> None:
    """Takes a member out of the team. Raises like `change_member`."""
    _may(by, Role(membership.role))
    remove_member(team=membership.team, user=membership.user)


def _may(by: Role, *roles: Role) -> None:
    if Role.OWNER in roles and by != Role.OWNER:
        raise PermissionDenied(f"You are a {by.label.lower()} of this team; only an owner makes or removes owners.")


def _keep_an_owner(team: Team) -> None:
    owners = Membership.objects.select_for_update().filter(team=team, role=Role.OWNER)
    if len(owners) == 1:
        raise ValidationError(f"{team} has only one owner. Make someone else an owner first.", code="last_owner")
