"""Closing an account."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from webapp.accounts.models import User
from webapp.accounts.services import deactivate
from webapp.core.counts import counted


class Command(BaseCommand):
    """Nothing that the person made is lost; their name stays on it."""

    help = "Close a person's account: no signing in, and no access token of theirs opens anything."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("email")

    def handle(self, *args: Any, email: str, **options: Any) -> None:
        user = User.objects.filter(email=email.strip().lower()).first()
        if user is None:
            raise CommandError(f"Nobody here has the address {email!r}.")
        revoked = deactivate(user=user)
        self.stdout.write(
            f"{user.email} can no longer sign in; {counted(revoked, 'access token was', 'access tokens were')} revoked."
        )
