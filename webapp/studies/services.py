"""Launching studies, and launching what becomes possible while their runs end."""

import json
import logging
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from trainer.contract.study import Form
from trainer.contract.study import Study as Contract
from trainer.studies import ASSETS
from webapp.accounts.models import User
from webapp.checkpoints.importing import import_checkpoint
from webapp.checkpoints.models import Checkpoint
from webapp.launch.services import DEFAULT_QUEUE, InvalidConfig, cancel_run, checked, launch_run
from webapp.projects.models import Project
from webapp.runs.models import Run
from webapp.runs.states import ACTIVE, BadTransition, RunState
from webapp.studies.models import Member, Study

logger = logging.getLogger(__name__)

Part = Member.Part
REUSED = {RunState.QUEUED, RunState.FINISHED, *ACTIVE}


def launch_study(
    project: Project, user: User | None, contract: Contract, form: Form, *, queue: str = DEFAULT_QUEUE
) -> Study:
    """The study, its training runs in the queue, and the base's evaluation. A run of the project with the very same
    configuration is shared instead of repeated. Raises InvalidConfig and ValidationError. Permissions are the caller's
    business.
    """
    base = _base_uri(project, contract)
    with transaction.atomic():
        study = Study.objects.create(
            project=project,
            slug=contract.slug,
            title=contract.title,
            form=form,
            document=contract.model_dump(mode="json"),
            queue=queue,
            base_uri=base,
            created_by=user,
        )
        if base:
            _launch_arms(study)
        else:
            _add(study, Part.BASE, "", -1, contract.base.train, "base")
    return study


def _base_uri(project: Project, contract: Contract) -> str:
    """The base as a checkpoint of the project, imported first where it comes with the product; empty when it is to be
    trained."""
    wanted = contract.base.checkpoint
    if wanted is None:
        return ""
    folder = ASSETS / wanted
    if folder.is_dir():
        details = json.loads((folder / "base.json").read_text()) if (folder / "base.json").is_file() else {}
        return import_checkpoint(project=project, folder=folder, name=wanted, details=details).policy_uri
    found = Checkpoint.objects.filter(project=project, policy_uri=wanted, removed_at=None).first()
    if found is None:
        raise ValidationError({"base": f"found {wanted!r}, expected a checkpoint of the project; upload it first"})
    return found.policy_uri


def _launch_arms(study: Study) -> None:
    contract, form = study.contract, _form(study)
    measure = contract.evaluation_document(checkpoint=study.base_uri, split="test", form=form)
    _add(study, Part.MEASURE, "", -1, measure, "base, measured")
    for seed in contract.seeds_of(form):
        for arm in contract.chosen(form):
            document = contract.document(arm, seed=seed, checkpoint=study.base_uri, form=form)
            _add(study, Part.TRAIN, arm.name, seed, document, f"{arm.title} · seed {seed}")


def _form(study: Study) -> Form:
    return "quick" if study.form == Study.Form.QUICK else "full"


def _add(study: Study, part: Part, arm: str, seed: int, document: Any, name: str, parent: Run | None = None) -> Member:
    """One run of the study: an equal one of the project, or a new one."""
    run = _equal_run(study.project, document)
    if run is None:
        run = launch_run(
            study.project,
            study.created_by,
            document,
            name=f"{study.slug} {study.form} · {name}"[:120],
            tags=[f"study {study.pk}"],
            queue=study.queue,
            parent=parent,
        )
    return Member.objects.create(study=study, run=run, part=part, arm=arm, seed=seed)


def _equal_run(project: Project, document: Any) -> Run | None:
    """The newest run of the project with this configuration that has not failed."""
    config, _ = checked(project, document)
    same = Run.objects.filter(project=project, kind=config["kind"], seed=config["seed"], state__in=REUSED)
    return next((run for run in same.order_by("-created_at") if run.config == config), None)


def follow() -> None:
    """Launches what has become possible: arms once the base is there, evaluations once an arm has finished."""
    for study in Study.objects.filter(open=True).select_related("project__team"):
        advance(study)


def advance(study: Study) -> None:
    """The same for one study. Two schedulers at once launch nothing twice: each place is taken once. What is refused is
    told in the log and tried again, since a queue or a checkpoint may come back."""
    try:
        with transaction.atomic():
            Study.objects.select_for_update(no_key=True).get(pk=study.pk)
            _advance(study)
    except IntegrityError:
        return
    except (InvalidConfig, ValidationError) as error:
        logger.warning("study %s cannot go on: %s", study.pk, error)


def _advance(study: Study) -> None:
    members = list(study.members.select_related("run"))
    if not study.base_uri:
        made = next((member for member in members if member.part == Part.BASE), None)
        checkpoint = _final(made.run) if made else None
        if checkpoint is None:
            return
        study.base_uri = checkpoint.policy_uri
        study.save(update_fields=["base_uri"])
        _launch_arms(study)
        return
    measured = {(member.arm, member.seed) for member in members if member.part == Part.MEASURE}
    waiting = 0
    for member in members:
        if member.part != Part.TRAIN or (member.arm, member.seed) in measured:
            continue
        checkpoint = _final(member.run)
        if checkpoint is None:
            waiting += 1
            continue
        arm = next(arm for arm in study.contract.arms if arm.name == member.arm)
        document = study.contract.evaluation_document(
            checkpoint=checkpoint.policy_uri, split="test" if arm.role == "null" else "both", form=_form(study)
        )
        name = f"{arm.title} · seed {member.seed}, measured"
        _add(study, Part.MEASURE, member.arm, member.seed, document, name, parent=member.run)
    if not waiting:
        study.open = False
        study.save(update_fields=["open"])


def _final(run: Run) -> Checkpoint | None:
    """The final checkpoint of a finished run, once its files are in the storage."""
    if run.state != RunState.FINISHED:
        return None
    rows = Checkpoint.objects.filter(run=run, final=True, retired=False, removed_at=None, stored_at__isnull=False)
    return rows.order_by("-iteration").first()


def stop_study(study: Study, user: User | None) -> int:
    """Stops every run of the study that is not over and is no other study's; how many. Nothing more is launched."""
    study.open = False
    study.save(update_fields=["open"])
    stopped = 0
    for member in study.members.select_related("run__project__team"):
        if member.run.can_stop and not member.run.memberships.exclude(study=study).exists():  # type: ignore[attr-defined]
            try:
                cancel_run(member.run, user)
            except BadTransition:  # it has just ended
                continue
            stopped += 1
    return stopped
