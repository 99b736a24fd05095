"""Taking a person into a team."""

from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from webapp.teams.models import Role, Team
from webapp.teams.services import add_member


class Command(BaseCommand):
    """Somebody without an account gets one, with a one-time password."""

    help = "Take a person into a team; prints a one-time password for somebody new."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("team", help="as it appears in addresses, for example lab")
        parser.add_argument("email", help="the person signs in with it")
        parser.add_argument("role", choices=Role.values)

    def handle(self, *args: Any, team: str, email: str, role: str, **options: Any) -> None:
        found = Team.objects.filter(slug=team).first()
        if found is None:
            known = ", ".join(Team.objects.order_by("slug").values_list("slug", flat=True)) or "none"
            raise CommandError(f"There is no team {team!r}; teams here: {known}.")
        try:
            # Whoever reaches the server's command line may do what an owner may.
            membership, password = add_member(team=found, by=Role.OWNER, email=email, role=Role(role))
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        if password:
            self.stdout.write(f"{membership.user.email} signs in with the one-time password {password}")
        self.stdout.write(f"{membership.user.email} is {membership.get_role_display().lower()} of {found.slug}")
