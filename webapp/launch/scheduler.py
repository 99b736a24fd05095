"""The scheduler: every job in a thread of its own, so that a long one never keeps the others waiting.

It needs the database and no broker. Whatever a job meets, it is called again after its pause: a database or a broker
that is away is only waited for.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from django.db import InterfaceError, OperationalError, close_old_connections

from webapp.core.jobs import Job

log = logging.getLogger(__name__)


class Scheduler:
    """Calls the jobs until `stop`. `wait(seconds)` is true when it is time to leave; tests give their own."""

    def __init__(self, jobs: Sequence[Job], *, wait: Callable[[float], bool] | None = None) -> None:
        self.jobs = list(jobs)
        self._over = threading.Event()
        self._wait = wait or self._over.wait
        self._threads = [
            threading.Thread(target=self._repeat, args=(job,), name=job.name, daemon=True) for job in self.jobs
        ]

    def start(self) -> None:
        """Begins, and returns."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """No job is called any more."""
        self._over.set()

    def join(self, seconds: float) -> None:
        """Waits for the jobs that are at work. One that takes longer is cut off, which every job bears."""
        for thread in self._threads:
            thread.join(seconds)

    def _repeat(self, job: Job) -> None:
        while not self._wait(job.every):
            self.call(job)
        close_old_connections()

    def call(self, job: Job) -> None:
        """One call, whatever comes of it."""
        close_old_connections()
        try:
            job.function()
        except (OperationalError, InterfaceError) as error:
            log.warning("%s: the database does not answer (%s); trying again in %.0f s.", job.name, error, job.every)
        except Exception:
            log.exception("%s failed; trying again in %.0f s.", job.name, job.every)
