"""Launching, stopping and resuming runs."""

import json
from collections.abc import Iterable
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from trainer.contract.config import InvalidConfig
from trainer.methods import resolve
from webapp.accounts.models import User
from webapp.checkpoints.services import record_input
from webapp.projects.models import Project
from webapp.runs.models import Attempt, Run
from webapp.runs.services import add_attempt, create_run, request_stop

__all__ = ["InvalidConfig", "cancel_run", "launch_run", "resolved", "resume_run"]


def resolved(document: Any) -> dict[str, Any]:
    """The complete configuration as JSON: presets filled in, every parameter checked. Raises InvalidConfig with all
    problems.
    """
    config: dict[str, Any] = resolve(document).model_dump(mode="json")
    return config


def launch_run(
    project: Project,
    user: User | None,
    document: Any,
    *,
    name: str = "",
    parent: Run | None = None,
    tags: Iterable[str] = (),
    notes: str = "",
    run_id: str | None = None,
) -> Run:
    """A queued run of the document, and a message that wakes a worker once the row is committed. Raises InvalidConfig.

    `parent` is the run whose configuration was edited or whose checkpoint is used. `run_id` was made beforehand, so
    that a request sent twice launches once (the second raises ValidationError). Permissions are the caller's business.
    """
    config = resolved(document)
    methods = [choice["slug"] for choice in config.get("methods") or ()]
    with transaction.atomic():
        run = create_run(
            project=project,
            name=name.strip() or _free_name(project, default_name(config)),
            kind=config["kind"],
            config=config,
            seed=config["seed"],
            methods=methods,
            task=config["task"]["name"],
            user=user,
            parent=parent,
            tags=tags,
            notes=notes,
            run_id=run_id,
        )
        base = config["policy"].get("checkpoint")
        if base:
            record_input(run=run, uri=base)
        enqueue(run.attempts.get(number=1))
    return run


def default_name(config: dict[str, Any]) -> str:
    """What a run is called unless someone says otherwise: method, task, seed."""
    methods = [choice["slug"] for choice in config.get("methods") or ()]
    what = "+".join(methods) or (config["algorithm"]["preset"] if config["kind"] == "rl" else config["kind"])
    return f"{what} · {config['task']['name']} · seed {config['seed']}"


def _free_name(project: Project, wanted: str) -> str:
    """`wanted`, or with " · 2", " · 3", … when a run of the project is called so already. For the caller's transaction."""
    # Two launches at once wait for each other here; otherwise both would take the same number.
    Project.objects.select_for_update(no_key=True).get(pk=project.pk)
    longest = Run._meta.get_field("name").max_length or 0
    wanted = wanted[: longest - 8]
    taken = set(Run.objects.filter(project=project, name__startswith=wanted).values_list("name", flat=True))
    numbered = (f"{wanted} · {number}" for number in range(2, len(taken) + 2))
    return next(name for name in (wanted, *numbered) if name not in taken)


def cancel_run(run: Run, user: User | None) -> Run:
    """A queued run is cancelled at once; an active one saves its state and leaves. Raises BadTransition for one that
    is over.
    """
    return request_stop(run=run, user=user)


def resume_run(run: Run, user: User | None) -> Attempt:
    """A new attempt from the newest complete checkpoint. Raises BadTransition unless the run is over and not
    finished.
    """
    with transaction.atomic():
        attempt = add_attempt(run=run, user=user)
        enqueue(attempt)
    return attempt


def enqueue(attempt: Attempt) -> None:
    """Sends the message that wakes a worker, after the commit. Losing or repeating it does no harm: the row decides."""
    Attempt.objects.filter(pk=attempt.pk).update(enqueued_at=timezone.now(), messages_sent=F("messages_sent") + 1)
    transaction.on_commit(lambda: _send(attempt.pk), robust=True)


def _send(attempt_id: int) -> None:
    from webapp.launch.tasks import supervise

    supervise.delay(attempt_id)


def config_text(run: Run) -> str:
    """The resolved configuration as people download it."""
    return json.dumps(run.config, indent=2, ensure_ascii=False) + "\n"
