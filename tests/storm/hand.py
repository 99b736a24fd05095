"""What the storm asks of the installation from inside it; called through `tests.installed.hand`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.conf import settings
from django.test import Client
from django.urls import reverse

from tests.installed.hand import launch, resume, stop
from tests.installed.record import ALL_POINTS
from tests.storm.record import whole_record_of
from tests.storm.verdict import faults_of
from webapp.accounts.models import User
from webapp.checkpoints.models import Checkpoint
from webapp.metrics.selectors import load_series, series_of
from webapp.runs.models import Attempt, EventRow, Run
from webapp.runs.selectors import DRAWN, event_json
from webapp.runs.states import ACTIVE, RunState
from webapp.runs.storage import files_root, is_local, walk

__all__ = [
    "cookie", "deliver_again", "faults", "launch", "resume", "shown", "situation", "stop", "stream", "unstored",
    "whole_record",
]  # fmt: skip


def situation() -> list[dict[str, Any]]:
    """Every run as it stands, oldest first; `reasons` are why it was queued again, each time."""
    return [
        {
            "id": run.pk,
            "state": run.state,
            "message": run.message,
            "iteration": run.iteration,
            "total": run.config["budget"]["iterations"],
            "attempt": run.attempt_number,
            "pid": run.attempts.get(number=run.attempt_number).pid,
            "reasons": [step.reason for step in run.transitions.filter(target="queued").order_by("pk")][1:],
        }
        for run in Run.objects.order_by("created_at", "pk").prefetch_related("transitions")
    ]


def whole_record(run: str) -> dict[str, Any]:
    """See `tests.storm.record`."""
    return whole_record_of(Run.objects.get(pk=run))


def faults(run: str, undisturbed: dict[str, Any]) -> list[str]:
    """See `tests.storm.verdict`."""
    return faults_of(Run.objects.get(pk=run), undisturbed)


def deliver_again() -> int:
    """Sends the message of every attempt that waits or runs once more; how many."""
    from webapp.launch.tasks import supervise

    found = Attempt.objects.filter(state__in=[*ACTIVE, RunState.QUEUED], superseded=False)
    for attempt in found:
        supervise.delay(attempt.pk)
    return len(found)


def cookie(email: str) -> str:
    """What a browser in which this person is signed in sends."""
    person = User.objects.get(email=email)
    person.must_choose_password = False
    person.save()
    client = Client()
    client.force_login(person)
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


def stream(run: str) -> str:
    """The path of the run's live stream."""
    found = Run.objects.select_related("project__team").get(pk=run)
    return reverse("live:stream", args=(*found.project.url_args, run))


def shown(run: str) -> dict[str, Any]:
    """What a page that has followed the run since its launch should have been told; see `tests.storm.reader`."""
    found = Run.objects.get(pk=run)
    rows = EventRow.objects.filter(run=found)
    lines = rows.filter(kind__in=("log", "mark", "phase"))
    pictures = rows.filter(kind__in=DRAWN, retired=False).values_list("kind", "key", "iteration").distinct()
    keys = list(series_of(found).values_list("key", flat=True))
    return {
        "cursor": found.live_seq,
        "state": found.state,
        "lines": [_line(row) for row in lines.filter(retired=False)],
        "hidden_lines": [_line(row) for row in lines.filter(retired=True)],
        "points": {
            one.key: dict(zip(map(str, one.iteration), one.y, strict=True))
            for one in load_series(found, keys, max_points=ALL_POINTS) if one.iteration
        },
        "pictures": [list(one) for one in pictures],
        "evaluations": sorted(found.evaluations.filter(retired=False).values_list("pk", flat=True)),
    }  # fmt: skip


def _line(row: EventRow) -> str:
    return json.dumps(json.loads(json.dumps(event_json(row))), sort_keys=True)


def unstored() -> list[str]:
    """Complete files of attempts that this host has and the bucket lacks; none where the storage is this host's folder.
    Not those of checkpoints that were removed: what a bucket that is away did not let go of is an orphan.
    """
    if is_local():
        return []
    there, root = {file.uri for file in walk("runs")}, files_root()
    offered = set(Checkpoint.objects.filter(removed_at=None).values_list("uri", flat=True))
    found = []
    for folder in root.glob("runs/*/attempts/*"):
        for path in filter(Path.is_file, folder.rglob("*")):
            parts = path.relative_to(folder).parts
            draft = any(part.startswith(".") for part in parts) or path.suffix == ".partial"
            gone = parts[0] == "checkpoints" and str((folder / parts[0] / parts[1]).relative_to(root)) not in offered
            if not draft and not gone and str(path.relative_to(root)) not in there:
                found.append(str(path.relative_to(root)))
    return found
