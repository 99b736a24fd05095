"""Compares the file storage with the rows: orphans, missing files, damaged checkpoints."""

import re
from argparse import ArgumentParser, ArgumentTypeError
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.template.defaultfilters import filesizeformat
from django.utils import timezone

from webapp.checkpoints.models import Checkpoint
from webapp.checkpoints.services import verify_checkpoint
from webapp.core.counts import counted
from webapp.core.templatetags.figures import relative
from webapp.files.orphans import GRACE, Found, find, is_due, remove_orphans

UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}


def age(text: str) -> timedelta:
    """90m, 24h or 7d."""
    found = re.fullmatch(r"(\d{1,6})([mhd])", text)
    if found is None:
        raise ArgumentTypeError(f"{text!r} is no age; expected for instance 90m, 24h or 7d")
    return int(found[1]) * UNITS[found[2]]


class Command(BaseCommand):
    """`--check` changes nothing and ends with an error when rows lack their files. `--remove` asks before it removes
    orphans that have lain still for long enough. `--verify` reads a checkpoint's files.
    """

    help = "Find files without a row and rows without files; remove orphans; verify a checkpoint's files."

    def add_arguments(self, parser: ArgumentParser) -> None:
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--check", action="store_true", help="list orphans and rows without files, with the reason")
        what.add_argument("--remove", action="store_true", help="remove orphans, after asking")
        what.add_argument("--verify", type=int, metavar="ID", help="compare a checkpoint's files with its manifest")
        parser.add_argument(
            "--older-than",
            type=age,
            default=GRACE,
            metavar="AGE",
            help="with --remove: unchanged so long (default 24h)",
        )
        parser.add_argument("--yes", action="store_true", help="with --remove: do not ask")

    def handle(self, *args: Any, check: bool, remove: bool, verify: int | None, **options: Any) -> None:
        if verify is not None:
            self._verify(verify)
            return
        found = find(lambda seen: self.stderr.write(f"{seen} files …"))
        self._tell(found)
        if remove:
            self._remove(found, options["older_than"], sure=options["yes"])
        if found.missing:
            raise CommandError(
                f"{counted(len(found.missing), 'row has', 'rows have')} no files; a backup may have them"
            )

    def _tell(self, found: Found) -> None:
        for verdict in found.orphans:
            unit = verdict.unit
            files = counted(unit.files, "file")
            old = relative((timezone.now() - unit.newest).total_seconds())
            self.stdout.write(
                f"orphan   {unit.uri}  {files}, {filesizeformat(unit.size)}, changed {old}\n         {verdict.why}"
            )
        for missing in found.missing:
            self.stdout.write(f"missing  {missing.uri}  {missing.row}\n         {missing.why}")
        self.stdout.write(
            f"{counted(len(found.orphans), 'orphan')} ({filesizeformat(found.size)}), "
            f"{counted(len(found.missing), 'row')} without files."
        )

    def _remove(self, found: Found, older_than: timedelta, *, sure: bool) -> None:
        due = [one.unit for one in found.orphans if is_due(one, older_than=older_than)]
        if not due:
            self.stdout.write("Nothing has lain still for long enough to be removed.")
            return
        size = filesizeformat(sum(unit.size for unit in due))
        if not sure and input(f"Remove {len(due)} of them ({size}) for good? Type yes: ").strip().lower() != "yes":
            raise CommandError("nothing was removed")
        gone, kept = remove_orphans([unit.uri for unit in due], older_than=older_than)
        for uri, why in kept.items():
            self.stdout.write(f"kept     {uri}: {why}")
        self.stdout.write(
            f"Removed {counted(len(gone), 'orphan')} ({filesizeformat(sum(unit.size for unit in gone))})."
        )

    def _verify(self, checkpoint_id: int) -> None:
        row = Checkpoint.objects.filter(pk=checkpoint_id).first()
        if row is None or not row.available:
            raise CommandError(f"there is no checkpoint {checkpoint_id} with files")
        if damage := verify_checkpoint(row).damage:
            raise CommandError(f"{row.name} is damaged: {damage}")
        self.stdout.write(f"Every file of {row.name} is as it was saved.")
