"""Launching, stopping and resuming runs."""

import json
from collections.abc import Iterable
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from trainer.contract.config import InvalidConfig, migrated
from trainer.methods import resolve
from webapp.accounts.models import User
from webapp.checkpoints.models import Checkpoint
from webapp.checkpoints.services import choose_for_attempt, record_input
from webapp.datasets.models import Version
from webapp.datasets.services import record_use
from webapp.launch.bases import check_base
from webapp.launch.datasets import with_dataset
from webapp.launch.secrets import problems_with_names, problems_with_secrets
from webapp.launch.selectors import queue_names
from webapp.projects.models import Project
from webapp.runs.models import Attempt, Run
from webapp.runs.services import add_attempt, create_run, request_stop

__all__ = ["InvalidConfig", "cancel_run", "checked", "launch_run", "resolved", "resume_run"]


DEFAULT_QUEUE = "default"


def check_queue(name: str) -> None:
    """Raises ValidationError for a queue that neither the settings nor a live worker names."""
    known = queue_names()
    if name not in known:
        raise ValidationError(
            {
                "queue": f"found {name!r}; known queues are {', '.join(known)} (UNSQUEEZE_QUEUES, and those of live workers)."
            }
        )


def resolved(document: Any) -> dict[str, Any]:
    """The complete configuration as JSON: presets filled in, every parameter checked. Raises InvalidConfig with all
    problems.
    """
    config: dict[str, Any] = resolve(document).model_dump(mode="json")
    return config


def resolved_for(project: Project, document: Any) -> tuple[dict[str, Any], Version | None]:
    """The complete configuration of a run in this project, and the dataset version that it uses. Raises InvalidConfig."""
    return with_dataset(project, resolved(document))


def checked(project: Project, document: Any) -> tuple[dict[str, Any], Version | None]:
    """The same, and the base must be a checkpoint of the project, and the secrets the team's: everything that launching
    checks.
    """
    config, version = resolved_for(project, document)
    # First, because other refusals repeat what they found.
    if problems := problems_with_secrets(project.team, config):
        raise InvalidConfig(problems)
    base = config["policy"].get("checkpoint")
    if base is not None and (problems := check_base(project, base)):
        raise InvalidConfig(problems)
    return config, version


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
    queue: str = DEFAULT_QUEUE,
    auto_resume: int | None = None,
) -> Run:
    """A queued run of the document, and a message that wakes a worker once the row is committed. Raises InvalidConfig.

    `parent` is the run whose configuration was edited or whose checkpoint is used. `run_id` was made beforehand, so
    that a request sent twice launches once (the second raises ValidationError). `queue` decides which workers may take
    it; one that the installation does not know raises ValidationError. `auto_resume` is how often in a row it may be
    resumed automatically without progress (None: as the installation says; 0: never). Permissions are the caller's
    business.
    """
    check_queue(queue)
    config, version = checked(project, document)
    methods = [choice["slug"] for choice in config.get("methods") or ()]
    with transaction.atomic():
        run = create_run(
            project=project,
            name=name.strip() or _free_name(project, default_name(config, version)),
            kind=config["kind"],
            config=config,
            seed=config["seed"],
            methods=methods,
            task=str(version)[:60] if version else config["task"]["name"],
            user=user,
            parent=parent,
            tags=tags,
            notes=notes,
            run_id=run_id,
            queue=queue,
            auto_resume=auto_resume,
        )
        base = config["policy"].get("checkpoint")
        if base:
            record_input(run=run, uri=base)
        if version is not None:
            record_use(run=run, version=version)
        enqueue(run.attempts.get(number=1))
    return run


def default_name(config: dict[str, Any], version: Version | None = None) -> str:
    """What a run is called unless someone says otherwise: method, task, seed."""
    methods = [choice["slug"] for choice in config.get("methods") or ()]
    what = "+".join(methods) or (config["algorithm"]["preset"] if config["kind"] == "rl" else config["kind"])
    return f"{what} · {version or config['task']['name']} · seed {config['seed']}"


def _free_name(project: Project, wanted: str) -> str:
    """`wanted`, or with " · 2", " · 3", … when a run of the project is called so already. For the caller's transaction."""
    # Two launches at once wait for each other here; otherwise both would take the same number.
    Project.objects.select_for_update(no_key=True).get(pk=project.pk)
    longest = Run._meta.get_field("name").max_length or 0
    wanted = wanted[: longest - 8]
    taken = set(Run.objects.filter(project=project, name__startswith=wanted).values_list("name", flat=True))
    numbered = (f"{wanted} · {number}" for number in range(2, len(taken) + 2))
    return next(name for name in (wanted, *numbered) if name not in taken)


def why_unreadable(run: Run) -> str:
    """Why the run can be neither resumed nor duplicated by this release; empty when it can."""
    try:
        migrated(run.config)
    except InvalidConfig as error:
        return " ".join(problem.message for problem in error.problems)
    return ""


def cancel_run(run: Run, user: User | None) -> Run:
    """A queued run is cancelled at once; an active one saves its state and leaves. Raises BadTransition for one that
    is over.
    """
    return request_stop(run=run, user=user)


def resume_run(run: Run, user: User | None, *, checkpoint: Checkpoint | None = None) -> Attempt:
    """A new attempt from `checkpoint`, by default the newest whole one. Raises BadTransition unless the run is over and
    not finished, ValidationError for a checkpoint of another run or without files, InvalidConfig where its configuration is of a
    release that this one cannot read, or names secrets that the team no longer has.
    """
    migrated(run.config)
    if problems := problems_with_names(run.project.team, run.config):
        raise InvalidConfig(problems)
    with transaction.atomic():
        attempt = add_attempt(run=run, user=user)
        if checkpoint is not None:
            choose_for_attempt(run=run, attempt=attempt.number, checkpoint=checkpoint)
        enqueue(attempt)
    return attempt


def enqueue(attempt: Attempt) -> bool:
    """Sends the message that wakes a worker of the run's queue, after the commit; False when another scheduler has just
    sent one. Losing or repeating it does no harm: the row decides.
    """
    ours = Attempt.objects.filter(pk=attempt.pk, messages_sent=attempt.messages_sent).update(
        enqueued_at=timezone.now(), messages_sent=F("messages_sent") + 1
    )
    if ours:
        transaction.on_commit(lambda: _send(attempt.pk, attempt.run.queue), robust=True)
    return bool(ours)


def _send(attempt_id: int, queue: str) -> None:
    from webapp.launch.tasks import supervise

    supervise.apply_async((attempt_id,), queue=queue)


def config_text(run: Run) -> str:
    """The resolved configuration as people download it."""
    return json.dumps(run.config, indent=2, ensure_ascii=False) + "\n"
