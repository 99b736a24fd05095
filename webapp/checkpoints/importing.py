"""Taking a model that lies on this host into a project's checkpoints: a folder in the transformers layout, or a GGUF file."""

import hashlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from webapp.checkpoints.gguf_files import about_gguf
from webapp.checkpoints.layout import CARD, CONFIG, PICKLES, SUFFIXES, check_content
from webapp.checkpoints.manifests import MANIFEST, Damaged, manifest_text, verify
from webapp.checkpoints.models import Checkpoint
from webapp.checkpoints.services import LARGEST_VERIFIED
from webapp.projects.models import Project
from webapp.runs.storage import put, write

_CHUNK = 1 << 20


def import_from_server(*, project: Project, path: str, name: str = "") -> Checkpoint:
    """The same for somebody who is not on this host: the path must lie in one of the folders that the installation
    offers. Raises ValidationError; what lies elsewhere is answered like what is not there.
    """
    offered = [Path(folder).resolve() for folder in settings.IMPORT_FOLDERS]
    if not offered:
        raise ValidationError(
            {"path": "This installation offers no folders to import from (UNSQUEEZE_IMPORT_FOLDERS); upload the model."}
        )
    folder = Path(path).resolve()
    roots = [root for root in offered if folder.is_relative_to(root)] if Path(path).is_absolute() else []
    if not roots or not folder.exists():
        raise ValidationError({"path": f"There is nothing in {' or '.join(map(str, offered))} with this path."})
    files = files_of(folder)
    if astray := [one.name for one in files if not any(one.resolve().is_relative_to(root) for root in roots)]:
        raise ValidationError({"path": f"{', '.join(astray)} leads out of the folder."})
    if sum(one.stat().st_size for one in files) > LARGEST_VERIFIED:
        raise ValidationError(
            f"It is too large to wait for; on the server: manage.py import_checkpoint "
            f"{'/'.join(project.url_args)} {shlex.quote(str(folder))}",
            code="too_long_to_wait",
        )
    return import_checkpoint(project=project, folder=folder, name=name.strip() or folder.name)


def import_checkpoint(
    *, project: Project, folder: Path, name: str, details: Mapping[str, Any] | None = None
) -> Checkpoint:
    """Copies a model into the file storage, its manifest last. The same weights are imported once.

    `folder` holds config.json, .safetensors files (one or several with their index) and a tokenizer, or is one .gguf
    file, which stays what it is. Of other files a folder's README and the like are left out; weights that would have to
    be unpickled are refused where there are no others. A `card.json` is kept as the checkpoint's details (its
    `weights_hash` is taken over). Raises ValidationError saying what is wrong.
    """
    files = files_of(folder)
    sizes = {path.name: path.stat().st_size for path in files}
    found = check_content(sizes, lambda called, begin, end: _part(folder, called, begin, end))
    card = next((path for path in files if path.name == CARD), None)
    known = {**found, **(json.loads(card.read_text()) if card else {}), **(details or {})}
    weights = [path for path in files if path.suffix in (".safetensors", ".gguf")]
    if found["format"] == "gguf":
        known |= about_gguf(weights[0])
    digest = _digest([path for path in files if path.name == CONFIG] + weights)
    uri = f"checkpoints/{project.pk}/{digest[:20]}"
    existing = Checkpoint.objects.filter(project=project, uri=uri, removed_at=None).first()
    if existing is not None and _is_there(uri):
        return existing
    entries = {}
    for path in files:
        put(path, f"{uri}/{path.name}")
        with path.open("rb") as file:
            entries[path.name] = {
                "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
                "size": path.stat().st_size,
            }
    write(f"{uri}/{MANIFEST}", manifest_text(entries))
    return add_imported(
        project=project,
        uri=uri,
        name=name,
        weights_hash=str(known.get("weights_hash") or f"files-{digest}"),
        size=sum(sizes.values()),
        details=known,
    )


@transaction.atomic
def add_imported(
    *, project: Project, uri: str, name: str, weights_hash: str, size: int, details: Mapping[str, Any]
) -> Checkpoint:
    """The row of a model whose files and manifest are in the storage."""
    now = timezone.now()
    checkpoint, _made = Checkpoint.objects.update_or_create(
        project=project,
        uri=uri,
        defaults={
            "name": name[:120],
            "policy_uri": uri,
            "weights_hash": weights_hash[:80],
            "size_bytes": size,
            "final": True,
            "details": dict(details),
            "created_at": now,
            "stored_at": now,
            "verified_at": now,
            "damage": "",
            "removed_at": None,
        },
    )
    return checkpoint


def files_of(folder: Path) -> list[Path]:
    """The files that are taken, by name. Links are followed inside the folder only."""
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise ValidationError(f"{folder} is not there; expected a folder or a .gguf file", code="not_there")
    root = folder.resolve()
    files = [p for p in sorted(folder.iterdir()) if p.is_file() and not p.name.startswith(".") and p.name != MANIFEST]
    taken = [p for p in files if p.name.lower().endswith(SUFFIXES) and (not p.is_symlink() or _inside(p, root))]
    pickled = [p.name for p in files if p.name.lower().endswith(PICKLES)]
    if pickled and not any(p.suffix in (".safetensors", ".gguf") for p in taken):
        raise ValidationError(
            f"{folder} holds {', '.join(pickled)}, which may run code when opened and is not taken; convert the weights "
            "to .safetensors",
            code="pickle",
        )
    return taken


def _inside(path: Path, root: Path) -> bool:
    # A hub's cache links its files to a neighbouring folder of the same model.
    return path.resolve().is_relative_to(root.parents[1] if len(root.parents) > 1 else root)


def _part(folder: Path, name: str, begin: int, end: int) -> bytes:
    with (folder if folder.is_file() else folder / name).open("rb") as file:
        file.seek(begin)
        return file.read(end - begin)


def _is_there(uri: str) -> bool:
    try:
        verify(uri, hashes=False)
    except (FileNotFoundError, Damaged):
        return False
    return True


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()
