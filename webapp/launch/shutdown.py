"""What a worker does when it is told to leave: its trainers save, and their runs can be resumed.

Supervisors run as threads of the worker process (`--pool threads`), so that one event reaches them all.
"""

import threading
from typing import Any

from celery.signals import worker_shutting_down

leaving = threading.Event()


def connect() -> None:
    """Sets `leaving` when Celery begins to shut this worker down."""
    worker_shutting_down.connect(_on_shutdown, dispatch_uid="webapp.launch.shutdown")


def _on_shutdown(**kwargs: Any) -> None:
    leaving.set()
