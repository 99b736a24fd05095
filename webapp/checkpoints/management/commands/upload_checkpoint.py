"""Uploads a local model into a project in pieces, as the browser does: what broke off goes on where it broke."""

import hashlib
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from webapp.checkpoints import uploading
from webapp.checkpoints.importing import files_of
from webapp.projects.selectors import project_at

PIECE = 8 << 20


class Command(BaseCommand):
    """Every size, hash and layout is checked before there is a checkpoint. `import_checkpoint` copies at once instead, and
    knows weights that it has imported before.
    """

    help = "Upload a model (a folder in the transformers layout, or a .gguf file) into a project, in pieces."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("project", help="TEAM/PROJECT, as in the project's address")
        parser.add_argument("folder", type=Path, help="the folder, or the .gguf file")
        parser.add_argument("--name", help="what the launch form calls it (default: the folder's name)")

    def handle(self, *args: Any, project: str, folder: Path, name: str | None, **options: Any) -> None:
        try:
            found = project_at(project)
            files = {path.name: path for path in files_of(folder)}
            announced = {called: {"size": path.stat().st_size, "sha256": _hash(path)} for called, path in files.items()}
            wanted = name or folder.resolve().name
            upload = uploading.start_or_go_on(project=found, user=None, name=wanted, files=announced)
            for file, offset in uploading.offsets(upload).items():
                if offset:
                    self.stdout.write(f"{file} goes on at byte {offset}.")
                uploading.append(upload=upload, name=file, offset=offset, data=_pieces(files[file], offset))
            made = uploading.complete(upload)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        self.stdout.write(f"{made.name}: {made.policy_uri}")


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _pieces(path: Path, offset: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(offset)
        while data := file.read(PIECE):
            yield data
