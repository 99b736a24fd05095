"""A process with an installation's own settings that does what tests ask it, so that they need no page for it.

It reads one JSON list [name, arguments] a line and answers with one JSON object a line: {"result": …} or {"error": …}.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django

TEAM, PROJECT = "lab", "chains"


def main() -> None:
    django.setup()
    from django.db import close_old_connections

    for line in sys.stdin:
        name, arguments = json.loads(line)
        close_old_connections()
        try:
            answer = {"result": ACTIONS[name](**arguments)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def people(roles: dict[str, str]) -> dict[str, str]:
    """Makes the team, its project, and people by e-mail and role; their one-time passwords. The first one is owner."""
    from webapp.accounts.services import create_user_with_one_time_password
    from webapp.projects.services import create_project
    from webapp.teams.models import Role, Team
    from webapp.teams.services import create_team, set_role

    passwords = {}
    for email, role in roles.items():
        user, passwords[email] = create_user_with_one_time_password(email, display_name=email.partition("@")[0])
        team = Team.objects.filter(slug=TEAM).first()
        if team is None:
            create_project(team=create_team(slug=TEAM, name="Lab", owner=user), slug=PROJECT, name="Chains")
        else:
            set_role(team=team, user=user, role=Role(role))
    return passwords


def launch(document: dict[str, Any], run_name: str = "") -> str:
    """The id of the launched run."""
    from webapp.launch.services import launch_run
    from webapp.projects.models import Project

    return str(launch_run(Project.objects.get(slug=PROJECT), None, document, name=run_name).pk)


def bring(folder: str, called: str) -> str:
    """Imports a base; what a launch document calls it."""
    from webapp.checkpoints.services import import_checkpoint
    from webapp.projects.models import Project

    project = Project.objects.get(slug=PROJECT)
    return import_checkpoint(project=project, folder=Path(folder), name=called).policy_uri


def look(run: str) -> dict[str, Any]:
    """State, message and progress of a run, and the process of its attempt."""
    from webapp.metrics.models import Series
    from webapp.runs.models import Run

    found = Run.objects.get(pk=run)
    attempt = found.attempts.get(number=found.attempt_number)
    return {
        "state": found.state,
        "message": found.message,
        "iteration": found.iteration,
        "attempt": found.attempt_number,
        "pid": attempt.pid,
        "worker": attempt.worker,
        "exit_code": attempt.exit_code,
        "can_resume": found.can_resume,
        "series": Series.objects.filter(run=found, last_iteration__isnull=False).count(),
        "transitions": [t.target for t in found.transitions.all()],
    }


def stop(run: str) -> None:
    """Asks a run to save and leave."""
    from webapp.launch.services import cancel_run
    from webapp.runs.models import Run

    cancel_run(Run.objects.get(pk=run), None)


def resume(run: str) -> None:
    """A new attempt."""
    from webapp.launch.services import resume_run
    from webapp.runs.models import Run

    resume_run(Run.objects.get(pk=run), None)


def record(run: str) -> dict[str, Any]:
    """See `tests.installed.record`."""
    from tests.installed.record import record_of
    from webapp.runs.models import Run

    return record_of(Run.objects.get(pk=run))


ACTIONS: dict[str, Callable[..., Any]] = {
    one.__name__: one for one in (people, launch, bring, look, stop, resume, record)
}

if __name__ == "__main__":
    main()
