"""The whole installation in one file."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from webapp.backup.making import make_backup
from webapp.core.counts import counted


class Command(BaseCommand):
    """May run at any time; nothing waits for it."""

    help = "Write the database and the files to FILE, from which `restore` makes the same installation again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="a tar file; it appears when it is complete")
        parser.add_argument("--no-files", action="store_true", help="the database only: no checkpoints, no rollouts")
        parser.add_argument(
            "--with-keys", action="store_true", help="the signing key and the key of team secrets too: guard the file"
        )

    def handle(self, *args: Any, file: Path, no_files: bool, with_keys: bool, **options: Any) -> None:
        say = self.stdout.write if options["verbosity"] > 1 else lambda text: None
        try:
            manifest = make_backup(file.absolute(), with_files=not no_files, with_keys=with_keys, say=say)
        except OSError as error:
            raise CommandError(f"the backup could not be written: {error}") from error
        number = sum(name.startswith("files/") for name in manifest["members"])
        self.stdout.write(
            f"{file}: {counted(sum(manifest['rows'].values()), 'row')}, {counted(number, 'file')}, "
            f"{file.stat().st_size / 1e6:.1f} MB"
        )
        if manifest["files"] == "elsewhere":
            self.stdout.write(
                f"{counted(len(manifest['elsewhere']), 'file stays', 'files stay')} in {manifest['storage']}; "
                "the backup lists them."
            )
        if manifest["gone"]:
            self.stdout.write(
                f"{counted(len(manifest['gone']), 'file was', 'files were')} removed while it was made, so it lacks them."
            )
        if not with_keys:
            self.stdout.write(
                "Without keys: keep UNSQUEEZE_SECRETS_KEY (or secrets_key in the data folder) elsewhere; without it the "
                "team secrets in the backup cannot be read."
            )
