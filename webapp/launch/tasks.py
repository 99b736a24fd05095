"""What Celery calls: thin, safe to deliver twice."""

import socket
import threading
from pathlib import Path

from celery import shared_task
from django.conf import settings

from webapp.launch import queue
from webapp.launch.shutdown import leaving
from webapp.launch.supervisor import Supervisor
from webapp.runs.services import claim
from webapp.runs.storage import files_root


def worker_name() -> str:
    """Host and thread: what the run page shows as the place where a run lives."""
    return f"{socket.gethostname()}/{threading.current_thread().name}"


@shared_task(queue="default", name="launch.supervise", acks_late=True, ignore_result=True)
def supervise(attempt_id: int) -> None:
    """Claims the attempt and supervises its trainer to the end. A second delivery finds it claimed and does nothing.

    A worker that is leaving starts nothing: the attempt stays queued, and the scheduler sends its message again.
    """
    if leaving.is_set():
        return
    held = claim(attempt_id, worker=worker_name(), lease_seconds=settings.LEASE_SECONDS)
    if held is not None:
        Supervisor(held, root=Path(files_root())).run()


@shared_task(queue="periodic", name="launch.reap", ignore_result=True)
def reap() -> None:
    """Ends the attempts whose worker has been silent for too long."""
    queue.reap()


@shared_task(queue="periodic", name="launch.send_again", ignore_result=True)
def send_again() -> None:
    """Wakes a worker for queued attempts whose message may be lost."""
    queue.send_again()
