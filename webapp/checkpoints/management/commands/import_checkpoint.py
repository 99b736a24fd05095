"""Puts a local model folder or GGUF file into a project's list of bases."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from webapp.checkpoints.importing import import_checkpoint
from webapp.projects.selectors import project_at


class Command(BaseCommand):
    """Copies the folder's files into the file storage; the same weights are imported once."""

    help = "Import a model (a folder in the transformers layout, or a .gguf file) as a base checkpoint of a project."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("project", help="TEAM/PROJECT, as in the project's address")
        parser.add_argument(
            "folder", type=Path, help="with config.json, *.safetensors and tokenizer files; or a .gguf file"
        )
        parser.add_argument("--name", help="what the launch form calls it (default: the folder's name)")

    def handle(self, *args: Any, project: str, folder: Path, name: str | None, **options: Any) -> None:
        try:
            found = project_at(project)
            made = import_checkpoint(project=found, folder=folder, name=name or folder.resolve().name)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        self.stdout.write(f"{made.name}: {made.policy_uri}")
