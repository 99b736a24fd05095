"""The home page's bands: what needs attention, what runs, what has finished."""

from datetime import timedelta
from typing import Any

from django.utils import timezone

from webapp.projects.models import Project
from webapp.runlist.selectors import ended_well, needing_attention, rows_of, running

RECENT = timedelta(days=7)
SHOWN = 8


def attention(project: Project, user: Any) -> dict[str, Any] | None:
    """Failed and lost runs of the last days, each with what it said."""
    found = list(needing_attention(project, since=timezone.now() - RECENT)[: SHOWN + 1])
    return {"runs": found[:SHOWN], "more": len(found) > SHOWN} if found else None


def active(project: Project, user: Any) -> dict[str, Any] | None:
    """Runs that a worker holds or that wait for one."""
    found = list(running(project)[: SHOWN + 1])
    return {"rows": rows_of(found[:SHOWN]), "more": len(found) > SHOWN} if found else None


def finished(project: Project, user: Any) -> dict[str, Any] | None:
    """Runs that came to a good end in the last days; older ones only when there is nothing newer."""
    found = list(ended_well(project, since=timezone.now() - RECENT)[: SHOWN + 1])
    if not found:
        found = list(ended_well(project, since=timezone.now() - 50 * RECENT)[:3])
    return {"rows": rows_of(found[:SHOWN]), "more": len(found) > SHOWN} if found else None
