"""The checkpoints of a run as files: which there are, whether they are whole, where to go on, which to keep.

Nothing here needs torch. RUN/attempts/<n>/checkpoints/it-<iteration>/manifest.json makes a folder a checkpoint;
RUN/attempts/<n>/rewind.json says from which iteration the attempt went on, so that what earlier attempts saved after it is
no longer part of the run.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainer.contract import versions as schemas
from trainer.contract.files import write_whole
from trainer.core.errors import CheckpointError

MANIFEST = "manifest.json"
REWIND = "rewind.json"


def verify(folder: Path) -> dict[str, Any]:
    """The manifest of a complete checkpoint whose every file is as it was written. Raises CheckpointError naming the file,
    what was found and what was expected."""
    manifest = read_manifest(folder)
    files: dict[str, dict[str, Any]] = manifest["files"]
    found = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()} - {MANIFEST}
    if unknown := sorted(found - files.keys()):
        raise CheckpointError(
            f"checkpoint {folder}: file {unknown[0]!r} is not in its manifest; nothing is loaded beside it"
        )
    for name, wanted in files.items():
        path = folder / name
        if name not in found:
            raise CheckpointError(f"checkpoint {folder}: file {name!r} is missing, expected {wanted['size']} bytes")
        if (size := path.stat().st_size) != wanted["size"]:
            what = "was cut short" if size < wanted["size"] else "has grown"
            raise CheckpointError(
                f"checkpoint {folder}: file {name!r} {what}: found {size} bytes, expected {wanted['size']}"
            )
        if (digest := entry_of(path)["sha256"]) != wanted["sha256"]:
            raise CheckpointError(
                f"checkpoint {folder}: file {name!r} was changed: found sha256 {digest}, expected {wanted['sha256']}"
            )
    return manifest


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a checkpoint folder. Raises CheckpointError where there is none or it cannot be read."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
        if not isinstance(manifest.get("files"), dict):
            raise ValueError(f"{MANIFEST} lists no files")
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{folder} is not a complete checkpoint: {error}") from error
    try:
        return schemas.MANIFEST.migrate(manifest)
    except schemas.UnreadableVersion as error:
        raise CheckpointError(f"checkpoint {folder}: {error}") from error


def entry_of(path: Path) -> dict[str, Any]:
    """A file's line in a manifest: sha256 and size."""
    with path.open("rb") as f:
        return {"sha256": hashlib.file_digest(f, "sha256").hexdigest(), "size": path.stat().st_size}


def folder_size(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def iteration_of(folder: Path) -> int:
    """From a checkpoint folder's name."""
    return int(folder.name.removeprefix("it-"))


def complete_checkpoints(parent: Path) -> list[Path]:
    """Complete checkpoint folders under ``parent``, oldest iteration first."""
    return sorted(p.parent for p in parent.glob(f"it-*/{MANIFEST}"))


def note_rewind(attempt: Path, iteration: int) -> None:
    """Writes down from where an attempt goes on (-1: from the start). Raises OSError."""
    write_whole(attempt / REWIND, json.dumps({"iteration": iteration}))


def _noted(attempt: Path) -> float:
    """From where the attempt went on. One whose note is missing or empty (its disk was full) did not get to go on."""
    try:
        iteration: float = json.loads((attempt / REWIND).read_text())["iteration"]
    except (OSError, ValueError):
        return math.inf
    return iteration


def checkpoints_of(run: Path) -> Iterator[tuple[Path, bool]]:
    """Every complete checkpoint, newest first, and whether it is still part of the run: a later attempt that went on from
    before it has retired it."""
    attempts = (p for p in (run / "attempts").glob("*") if p.name.isdigit())
    limit = math.inf
    for attempt in sorted(attempts, key=lambda p: -int(p.name)):
        for folder in reversed(complete_checkpoints(attempt / "checkpoints")):
            yield folder, iteration_of(folder) <= limit
        limit = min(limit, _noted(attempt))


def newest_checkpoint(run: Path) -> Path | None:
    """Where a run resumes: its newest complete checkpoint that no later attempt has retired."""
    return next((folder for folder, counts in checkpoints_of(run) if counts), None)


def older_whole(run: Path, refused: Path) -> Path | None:
    """The newest checkpoint before ``refused`` whose every file is as it was written."""
    for folder, counts in checkpoints_of(run):
        if counts and folder != refused and iteration_of(folder) <= iteration_of(refused):
            try:
                verify(folder)
            except CheckpointError:
                continue
            return folder
    return None


def remove_checkpoint(folder: Path) -> None:
    """Removes a checkpoint, its manifest first: one that is removed halfway is no checkpoint any more."""
    (folder / MANIFEST).unlink()
    shutil.rmtree(folder)


def expired(run: Path, *, keep: int, keep_best: int, metric: str) -> list[Path]:
    """What may be removed: neither one of the ``keep`` newest nor of the ``keep_best`` with the highest ``metric`` at their
    own validation (the newer one where two are equal)."""
    found = list(checkpoints_of(run))
    standing = [folder for folder, counts in found if counts]
    measured = []
    for folder in standing if keep_best else ():
        value = read_manifest(folder).get("metrics", {}).get(metric)
        if value is not None:
            measured.append((value, folder))
    best = sorted(measured, key=lambda pair: (pair[0], iteration_of(pair[1])), reverse=True)[:keep_best]
    kept = {*standing[:keep], *(folder for _value, folder in best)}
    return [folder for folder, _counts in found if folder not in kept]
