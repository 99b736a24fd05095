"""Writes about checkpoints: those that runs report, imported ones, lineage."""

import hashlib
import json
import secrets
import shutil
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from webapp.checkpoints.models import Checkpoint, RunInput
from webapp.projects.models import Project
from webapp.runs.models import Run
from webapp.runs.storage import path_of, run_uri

POLICY_FOLDER = "policies/policy"
CARD = "card.json"
_CHUNK = 1 << 20


def store_checkpoint(*, run: Run, attempt: int, event: Mapping[str, Any], time: datetime, seq: int) -> Checkpoint:
    """Stores the contract's checkpoint event (as a dictionary). Idempotent on its URI. Raises BadUri."""
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
            "created_at": time,
            "removed_at": None,
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


def record_input(*, run: Run, uri: str) -> None:
    """Lineage, where the base is a checkpoint that this project knows; a plain folder leaves none."""
    found = Checkpoint.objects.filter(project_id=run.project_id, policy_uri=uri).first()
    if found is not None:
        RunInput.objects.get_or_create(run=run, role="base", defaults={"checkpoint": found})


def import_checkpoint(
    *, project: Project, folder: Path, name: str, details: Mapping[str, Any] | None = None
) -> Checkpoint:
    """Copies a folder in the transformers layout into the file storage. The same weights are imported once.

    The folder needs config.json and at least one .safetensors file; a `card.json` in it is kept as the checkpoint's
    details (its `weights_hash` is taken over). Raises ValidationError saying what is missing.
    """
    weights = sorted(folder.glob("*.safetensors"))
    if not (folder / "config.json").is_file() or not weights:
        raise ValidationError(
            f"{folder} is not a checkpoint: expected config.json and .safetensors files in the transformers layout",
            code="not_a_checkpoint",
        )
    card = folder / CARD
    known = {**(json.loads(card.read_text()) if card.is_file() else {}), **(details or {})}
    digest = _digest([folder / "config.json", *weights])
    uri = f"checkpoints/{project.pk}/{digest[:20]}"
    existing = Checkpoint.objects.filter(project=project, uri=uri, removed_at=None).first()
    if existing is not None and path_of(uri).is_dir():
        return existing
    _copy(folder, path_of(uri))
    with transaction.atomic():
        checkpoint, _made = Checkpoint.objects.update_or_create(
            project=project,
            uri=uri,
            defaults={
                "name": name[:120],
                "policy_uri": uri,
                "weights_hash": str(known.get("weights_hash") or f"files-{digest}")[:80],
                "size_bytes": sum(path.stat().st_size for path in folder.iterdir() if path.is_file()),
                "final": True,
                "details": known,
                "created_at": timezone.now(),
                "removed_at": None,
            },
        )
    return checkpoint


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


def _copy(source: Path, target: Path) -> None:
    """Plain files only, and the folder appears whole or not at all."""
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    draft.mkdir(parents=True)
    try:
        for path in source.iterdir():
            if path.is_file() and not path.is_symlink():
                shutil.copyfile(path, draft / path.name)
        if not target.exists():
            draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
