"""Encrypts all team secrets under the newest key."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from webapp.core.encryption import fingerprints
from webapp.teams.secret_services import rotate


class Command(BaseCommand):
    """To be run after a new key was put in front of the old one and every process was restarted."""

    help = "Encrypt all team secrets under the first key of UNSQUEEZE_SECRETS_KEY; then the other keys can be removed."

    def handle(self, *args: Any, **options: Any) -> None:
        done, unreadable = rotate()
        newest = fingerprints()[0]
        self.stdout.write(f"{done} encrypted again; key {newest} now holds all that could be read")
        if unreadable:
            names = ", ".join(f"{secret.team.slug}/{secret.name} (key {secret.key})" for secret in unreadable)
            raise CommandError(
                f"the keys of these are missing: {names}. Add their key to UNSQUEEZE_SECRETS_KEY and run this again, or "
                "have their values stored again."
            )
