"""An installation from a backup."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from webapp.backup.archive import BadBackup
from webapp.backup.restoring import NotEmpty, restore


class Command(BaseCommand):
    """Web server, workers and scheduler must be stopped."""

    help = "Make this installation what FILE says, on the database and storage that the settings name."
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="written by `backup`, by this version or an earlier one")
        parser.add_argument("--replace", action="store_true", help="put it in the place of what is here, which is lost")
        parser.add_argument("--no-input", action="store_true", help="do not ask before --replace")

    def handle(self, *args: Any, file: Path, replace: bool, no_input: bool, **options: Any) -> None:
        if replace and not no_input:
            answer = input("Everything in this installation's database and file storage is replaced. Type 'replace': ")
            if answer.strip() != "replace":
                raise CommandError("not replaced")
        say = self.stdout.write if options["verbosity"] > 0 else lambda text: None
        try:
            manifest = restore(file, replace=replace, say=say)
        except (BadBackup, NotEmpty, OSError) as error:
            raise CommandError(f"not restored: {error}") from error
        self.stdout.write(f"restored what version {manifest['version']} had on {manifest['made'][:19]} UTC")
        if manifest["files"] != "included":
            self.stdout.write(f"The backup holds no files; they were in {manifest['storage']}.")
