"""A process with an installation's own settings that does what tests ask it, so that they need no page for it.

It reads one JSON list [name, arguments] a line and answers with one JSON object a line: {"result": …} or {"error": …}.
A name with dots is a function of another module.
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
    from django.utils.module_loading import import_string

    for line in sys.stdin:
        name, arguments = json.loads(line)
        close_old_connections()
        try:
            action = import_string(name) if "." in name else ACTIONS[name]
            answer = {"result": action(**arguments)}
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


def token(email: str) -> str:
    """An access token of the person, with every scope."""
    from webapp.accounts.models import Scope, User
    from webapp.accounts.services import create_token

    return create_token(user=User.objects.get(email=email), name="a test", scopes=Scope.values)[1]


def launch(document: dict[str, Any], run_name: str = "", queue: str = "default") -> str:
    """The id of the launched run."""
    from webapp.launch.services import launch_run
    from webapp.projects.models import Project

    return str(launch_run(Project.objects.get(slug=PROJECT), None, document, name=run_name, queue=queue).pk)


def bring(folder: str, called: str) -> str:
    """Imports a base; what a launch document calls it."""
    from webapp.checkpoints.importing import import_checkpoint
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


def waiting() -> dict[str, str]:
    """Of the queued runs, by name, why they wait."""
    from webapp.accounts.models import User
    from webapp.launch.selectors import waiting_for

    return {row.attempt.run.name: row.why for row in waiting_for(User.objects.earliest("pk"))}


def drain(worker: str) -> None:
    """Lets a worker take no more runs."""
    from webapp.launch.workers import set_draining

    assert set_draining(name=worker, draining=True) is not None


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


def duplicate(run: str) -> dict[str, Any]:
    """The configuration that the launch form makes of a run's; None and the problems where it cannot be launched again."""
    from webapp.launch.about import about_copy_of
    from webapp.launch.forms import LaunchForm
    from webapp.runs.models import Run

    found = Run.objects.get(pk=run)
    form = LaunchForm.from_document(found.project, found.config, about=about_copy_of(found))
    return {"config": form.config, "problems": [str(problem) for problem in form.problems]}


ACTIONS: dict[str, Callable[..., Any]] = {
    one.__name__: one for one in (people, token, launch, bring, look, waiting, drain, stop, resume, record, duplicate)
}

if __name__ == "__main__":
    main()
