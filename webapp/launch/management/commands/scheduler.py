"""The scheduler: a process of its own for periodic work. A second one does no harm."""

import signal
import threading
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand

from webapp.core.jobs import jobs
from webapp.launch.scheduler import Scheduler

LEAVE_SECONDS = 20.0


class Command(BaseCommand):
    """Until SIGTERM or Ctrl-C."""

    help = "Run the scheduler: it ends the attempts of lost workers, resumes their runs, and wakes workers."

    def handle(self, *args: Any, **options: Any) -> None:
        asked = threading.Event()

        def leave(_number: int, _frame: FrameType | None) -> None:
            asked.set()

        signal.signal(signal.SIGTERM, leave)
        signal.signal(signal.SIGINT, leave)
        scheduler = Scheduler(jobs())
        scheduler.start()
        asked.wait()
        scheduler.stop()
        scheduler.join(LEAVE_SECONDS)
