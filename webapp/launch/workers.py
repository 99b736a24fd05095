"""Writes about workers: signing in, signs of life, draining, signing out."""

import os
import secrets
from collections.abc import Sequence
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from webapp.launch.models import Worker
from webapp.launch.selectors import SILENCE

FORGOTTEN = timedelta(days=7)
MOST_OF_ONE_NAME = 1000


@transaction.atomic
def sign_in(
    *, name: str, host: str, pid: int, version: str, queues: Sequence[str], slots: int, devices: Sequence[str]
) -> Worker:
    """The worker's row. Where a live worker has the name already, it is called name-2, name-3, …; one that has left, is
    silent, or was a process of this host that is gone has its name no more.
    """
    now, session = timezone.now(), secrets.token_hex(8)
    told = {
        "session": session, "host": host, "pid": pid, "version": version[:60], "queues": list(queues), "slots": slots,
        "devices": list(devices), "draining": False, "started_at": now, "seen_at": now, "stopped_at": None,
    }  # fmt: skip
    for number in range(1, MOST_OF_ONE_NAME):
        wanted = name if number == 1 else f"{name}-{number}"
        row = Worker.objects.select_for_update().filter(name=wanted).first()
        if row is None:
            row, made = Worker.objects.get_or_create(name=wanted, defaults=told)
            if made:
                return row
        elif row.stopped_at is not None or now - row.seen_at > SILENCE or (row.host == host and _is_gone(row.pid)):
            Worker.objects.filter(pk=row.pk).update(**told)
            row.refresh_from_db()
            return row
    raise RuntimeError(f"{MOST_OF_ONE_NAME} workers are called {name}; choose another --name")


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def beat(worker: Worker) -> Worker | None:
    """A sign of life; the row as it now stands, with what people have asked of it, or None when another process has
    taken the name.
    """
    rows = Worker.objects.filter(pk=worker.pk, session=worker.session)
    rows.update(seen_at=timezone.now(), stopped_at=None)
    return rows.first()


def sign_out(worker: Worker) -> None:
    """The process leaves."""
    now = timezone.now()
    Worker.objects.filter(pk=worker.pk, session=worker.session).update(seen_at=now, stopped_at=now)


def set_draining(*, name: str, draining: bool) -> Worker | None:
    """Tells a worker to take no more runs, or to take them again; None when there is no such worker."""
    Worker.objects.filter(name=name).update(draining=draining)
    return Worker.objects.filter(name=name).first()


def forget() -> int:
    """Removes workers that have been gone for a week."""
    gone, _ = Worker.objects.filter(seen_at__lt=timezone.now() - FORGOTTEN).delete()
    return gone
