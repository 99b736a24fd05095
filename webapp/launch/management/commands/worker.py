"""A worker: takes runs from queues and supervises their trainers, as many at once as it has slots."""

import logging
import os
import re
import socket
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from webapp.launch import here, workers
from webapp.launch.attempt_files import start_sweeping
from webapp.launch.broker import outlive_redis
from webapp.launch.models import Worker
from webapp.launch.services import DEFAULT_QUEUE
from webapp.launch.shutdown import leaving
from webapp.launch.slots import Slots, slots_of
from webapp.launch.tasks import supervise

log = logging.getLogger(__name__)
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}", re.IGNORECASE)


class Command(BaseCommand):
    """Runs Celery in this process. SIGTERM: its trainers save, their runs go back to the queue, and it leaves."""

    help = "Run a worker on this host: it trains the runs of its queues."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--queues", default=DEFAULT_QUEUE, help="which runs it takes, with commas (default: %(default)s)"
        )
        parser.add_argument("--slots", type=int, help="runs at once (default: one, or one for each device)")
        parser.add_argument("--devices", default="", help="a device for each slot, with commas: 0,1 (default: none)")
        parser.add_argument(
            "--name", default=socket.gethostname(), help="what pages call it (default: the host's name)"
        )

    def handle(self, *args: Any, queues: str, slots: int | None, devices: str, name: str, **options: Any) -> None:
        served, gpus = _words("--queues", queues), _words("--devices", devices) if devices else []
        count = slots if slots is not None else len(gpus) or 1
        if count < 1 or (gpus and count != len(gpus)):
            raise CommandError(
                f"--slots is {count} and --devices names {len(gpus)}; expected one slot for each device, at least one"
            )
        places = slots_of(count=count, devices=gpus, locks=Path(settings.DATA_DIR) / "locks")
        row = workers.sign_in(
            name=name, host=socket.gethostname(), pid=os.getpid(), version=settings.VERSION, queues=served, slots=count,
            devices=gpus,
        )  # fmt: skip
        here.become(row, Slots(worker=row.name, slots=places))
        log.info("Worker %s takes runs of %s into %s slots.", row.name, ", ".join(served), count)
        start_sweeping()
        with here.Presence(row, on_drain=lambda draining: _consume(row, not draining)):
            _celery(row)


def _celery(row: Worker) -> None:
    outlive_redis()
    supervise.app.worker_main([
        "worker", "--pool", "threads", "--concurrency", str(row.slots), "--queues", ",".join(row.queues),
        "--hostname", _node(row), "--without-gossip", "--without-mingle", "--loglevel", settings.LOG_LEVEL,
    ])  # fmt: skip
    if not leaving.is_set():
        raise CommandError("Celery has ended by itself; the log says why. Start the worker again.")


def _consume(row: Worker, wanted: bool) -> None:
    """Begins or ends taking messages. Where that cannot be said, messages are taken and left to the scheduler."""
    control = supervise.app.control
    tell = control.add_consumer if wanted else control.cancel_consumer
    try:
        for queue in row.queues:
            tell(queue, destination=[_node(row)])
    except Exception:
        log.exception("The broker does not answer.")


def _node(row: Worker) -> str:
    return f"{row.name}@{row.host}"


def _words(option: str, text: str) -> list[str]:
    found = [word.strip() for word in text.split(",")]
    wrong = [word for word in found if not NAME.fullmatch(word)]
    if wrong or len(set(found)) != len(found):
        raise CommandError(f"{option} is {text!r}; expected different names of letters, digits, - and _, with commas")
    return found
