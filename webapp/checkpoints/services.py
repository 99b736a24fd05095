"""Writes about checkpoints: those that runs report, where their files are, lineage, pins."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.utils import timezone

from webapp.checkpoints.manifests import Damaged, verify
from webapp.checkpoints.models import Checkpoint, RunInput
from webapp.checkpoints.selectors import checkpoints_in
from webapp.runs.models import Attempt, Run
from webapp.runs.storage import is_local, run_uri

POLICY_FOLDER = "policies/policy"
LARGEST_VERIFIED = 4 * 10**9
"""Bytes of a checkpoint that a request may wait for while it is verified; `manage.py files --verify` takes any."""


def store_checkpoint(*, run: Run, attempt: int, event: Mapping[str, Any], time: datetime, seq: int) -> Checkpoint:
    """Stores the contract's checkpoint event (as a dictionary). Idempotent on its URI. Raises BadUri.

    Where the storage is a bucket, the files are still on the worker only: `mark_stored` says when they have arrived.
    """
    local = is_local()
    worker = "" if local else Attempt.objects.values_list("worker", flat=True).get(run=run, number=attempt)
    iteration = event["axes"]["iteration"]
    uri = run_uri(run.pk, event["uri"])
    checkpoint, _made = Checkpoint.objects.update_or_create(
        project_id=run.project_id,
        uri=uri,
        defaults={
            "run": run,
            "attempt": attempt,
            "iteration": iteration,
            "name": f"{run.name} · {iteration}"[:120],
            "policy_uri": f"{uri}/{POLICY_FOLDER}",
            "weights_hash": event["weights_hash"],
            "size_bytes": event["size_bytes"],
            "final": event["final"],
            "metrics": event["metrics"],
            "created_at": time,
            "stored_at": time if local else None,
            "stored_on": worker,
            "removed_at": None,
            "damage": "",
            "live_seq": seq,
        },
    )
    return checkpoint


def mark_removed(*, run_id: str, uri: str, time: datetime, seq: int) -> None:
    """The files of a checkpoint of this run are gone; an unknown URI changes nothing. Raises BadUri."""
    Checkpoint.objects.filter(run_id=run_id, uri=run_uri(run_id, uri)).update(removed_at=time, live_seq=seq)


def rewind(*, run_id: str, attempt: int, iteration: int, seq: int) -> None:
    """Hides the checkpoints of earlier attempts after `iteration`."""
    Checkpoint.objects.filter(run_id=run_id, attempt__lt=attempt, iteration__gt=iteration, retired=False).update(
        retired=True, live_seq=seq
    )


def mark_refused(*, run_id: str, uri: str, reason: str, seq: int) -> None:
    """The trainer refused a checkpoint of this run; an unknown URI changes nothing. Raises BadUri."""
    Checkpoint.objects.filter(run_id=run_id, uri=run_uri(run_id, uri)).update(damage=reason, live_seq=seq)


def mark_stored(uris: Iterable[str]) -> int:
    """All files of these checkpoints are in the storage, the manifest last; how many rows that changed."""
    waiting = Checkpoint.objects.filter(uri__in=list(uris), stored_at=None)
    return waiting.update(stored_at=timezone.now(), stored_on="")


def record_input(*, run: Run, uri: str) -> None:
    """Lineage, where the base is a checkpoint that this project knows; a plain folder leaves none.

    From here on no retention removes it: the row is locked until the caller's transaction ends.
    """
    found = checkpoints_in(run.project).select_for_update(of=("self",)).filter(policy_uri=uri).first()
    if found is not None:
        RunInput.objects.get_or_create(run=run, role="base", defaults={"checkpoint": found})


def choose_for_attempt(*, run: Run, attempt: int, checkpoint: Checkpoint) -> None:
    """The attempt goes on from this checkpoint of the run, whatever newer ones there are. Raises ValidationError."""
    if checkpoint.run_id != run.pk:
        raise ValidationError(f"{checkpoint.name} is no checkpoint of {run.name}", code="foreign_checkpoint")
    if not checkpoint.available:
        raise ValidationError(f"{checkpoint.name} has no files any more; choose another one", code="no_files")
    RunInput.objects.update_or_create(run=run, role=f"resume {attempt}", defaults={"checkpoint": checkpoint})


def set_pinned(*, checkpoint: Checkpoint, pinned: bool) -> Checkpoint:
    """A pinned checkpoint is never removed by retention and is offered as a base. Raises ValidationError."""
    if pinned and not checkpoint.available:
        raise ValidationError(f"{checkpoint.name} has no files any more, so there is nothing to keep", code="no_files")
    checkpoint.pinned = pinned
    checkpoint.save(update_fields=["pinned"])
    return checkpoint


def verify_checkpoint(checkpoint: Checkpoint) -> Checkpoint:
    """Compares every stored file with the manifest and notes what was found. Raises StorageError when the storage does
    not answer, which says nothing about the checkpoint.
    """
    try:
        verify(checkpoint.uri)
        checkpoint.damage = ""
    except FileNotFoundError:
        checkpoint.damage = "it has no manifest, so that nothing can be compared"
    except Damaged as error:
        checkpoint.damage = str(error)
    checkpoint.verified_at = timezone.now()
    checkpoint.save(update_fields=["damage", "verified_at"])
    return checkpoint
