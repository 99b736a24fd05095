"""Imports a file of problems into a project, without a page and without the scheduler."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from webapp.core.counts import counted
from webapp.datasets import services
from webapp.datasets.models import Dataset, Import, ImportState
from webapp.datasets.tool import ToolError, inspect
from webapp.launch.imports import run_import
from webapp.projects.selectors import project_at
from webapp.runs import storage


class Command(BaseCommand):
    """The file is recognised by its columns, or read by a mapping document. The scheduler may run meanwhile."""

    help = "Import a JSONL, JSON, CSV or Parquet file (also .gz), or a save_to_disk folder, as a dataset version."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("project", help="TEAM/PROJECT, as in the project's address")
        parser.add_argument("source", type=Path, help="file or save_to_disk folder on this host")
        parser.add_argument("--name", help="name of the dataset (default: the file's); an existing one gets a version")
        parser.add_argument("--mapping", type=Path, help="JSON document with the mapping (default: as recognised)")
        parser.add_argument(
            "--skip-broken", action="store_true", help="leave broken rows out instead of refusing the file"
        )

    def handle(self, *args: Any, project: str, source: Path, name: str | None, **options: Any) -> None:
        if not source.exists():
            raise CommandError(f"{source} does not exist")
        wanted = name or source.resolve().name.split(".")[0]
        try:
            found = project_at(project)
            dataset = Dataset.objects.filter(project=found, name=wanted).first()
            dataset = dataset or services.create_dataset(project=found, name=wanted, user=None)
            job = services.add_file(dataset=dataset, path=source)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        done = self._import(job, options)
        if done.state != ImportState.FINISHED or done.version is None:
            services.discard(job=done)
            raise CommandError(done.message)
        said = f" {done.message}" if done.message else ""
        rows = counted(done.version.rows, "row")
        self.stdout.write(f"{done.version}: {rows}, content {done.version.content_hash[:16]}.{said}")

    def _import(self, job: Import, options: dict[str, Any]) -> Import:
        try:
            if options["mapping"]:
                mapping = json.loads(options["mapping"].read_text(encoding="utf-8"))
            else:
                mapping = inspect(storage.fetch(job.uri, size=job.size_bytes), job.filename)["recognised"]
        except (ToolError, OSError, ValueError) as error:
            services.discard(job=job)
            raise CommandError(str(error)) from error
        if options["skip_broken"]:
            mapping = {**mapping, "skip_broken": True}
        claimed = services.claim(job=services.start_import(job=job, mapping=mapping))
        if claimed is not None:
            run_import(claimed)
        job.refresh_from_db()
        return job
