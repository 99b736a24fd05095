"""Periodic work, which the apps bring themselves and `manage.py scheduler` does.

An app names its jobs in its `apps.py`:

    class RunsConfig(AppConfig):
        jobs = [Job(name="reap", work="webapp.launch.queue:reap", every=10.0)]

A job may be called by several schedulers at once, and any time after a crash in its midst: it must bear both.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.utils.module_loading import import_string


@dataclass(frozen=True, kw_only=True)
class Job:
    """`work` ("module:function") takes nothing; `every` is the pause between two calls, in seconds."""

    name: str
    work: str
    every: float

    @property
    def function(self) -> Callable[[], Any]:
        found: Callable[[], Any] = import_string(self.work.replace(":", "."))
        return found


def jobs() -> list[Job]:
    """The jobs of all installed apps."""
    return [job for config in apps.get_app_configs() for job in getattr(config, "jobs", ())]
