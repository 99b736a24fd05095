"""Draining a worker: what it holds goes to its end, and it takes nothing new."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from webapp.launch import workers
from webapp.launch.models import Worker


class Command(BaseCommand):
    """Sets or clears the flag; the worker itself acts on it within seconds."""

    help = "Let a worker finish the runs it holds and take no more, e.g. before its host is serviced."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("worker", help="its name, as the Queue page shows it")
        parser.add_argument("--undo", action="store_true", help="let it take runs again")

    def handle(self, *args: Any, worker: str, undo: bool, **options: Any) -> None:
        found = workers.set_draining(name=worker, draining=not undo)
        if found is None:
            known = ", ".join(Worker.objects.values_list("name", flat=True)) or "none"
            raise CommandError(f"there is no worker {worker!r}; known are {known}")
        self.stdout.write(
            f"{worker} takes runs again." if undo else f"{worker} takes no more runs; stop it when it is idle."
        )
