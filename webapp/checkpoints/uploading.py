"""Resumable uploads of models: announce the files, send pieces at their offsets, ask where to go on, complete.

    start(files: name → size, sha256)      → an Upload; a sha256 that is announced is compared, others are taken here
    append(name, offset, data)             → the new offset; a wrong one is answered with the right one
    offsets()                              → how far each file is, after a reload or a break
    complete()                             → every size, hash and layout is checked; then there is a Checkpoint

Pieces lie in this installation's folder of files until the upload is complete; the folder is shared by web processes on
several hosts where there are several. Uploads that nobody touches are removed by the scheduler.
"""

import hashlib
import re
import secrets
import shutil
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.utils import timezone

from webapp.accounts.models import User
from webapp.checkpoints.gguf_files import about_gguf
from webapp.checkpoints.importing import add_imported
from webapp.checkpoints.layout import check_content, check_names
from webapp.checkpoints.manifests import MANIFEST, manifest_text
from webapp.checkpoints.models import Checkpoint, Upload
from webapp.core.counts import counted
from webapp.projects.models import Project
from webapp.runs import pieces
from webapp.runs.storage import locked, path_of, put, write

KEPT_FOR = timedelta(days=2)
MOST_FILES = 500


def start(*, project: Project, user: User | None, name: str, files: Mapping[str, Mapping[str, Any]]) -> Upload:
    """A new upload of the announced files. Raises ValidationError."""
    if not name.strip():
        raise ValidationError("The model needs a name.", code="no_name")
    if len(files) > MOST_FILES:
        raise ValidationError(
            f"{counted(len(files), 'file is', 'files are')} announced; at most {MOST_FILES} are taken.", code="too_many"
        )
    check_names(files)
    announced: dict[str, dict[str, Any]] = {}
    for called, entry in files.items():
        size, digest = entry.get("size"), entry.get("sha256")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise ValidationError(f"{called}: size is {size!r}; expected bytes, as a whole number.", code="bad_size")
        announced[called] = {"size": size}
        if digest is not None:
            if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-f]{64}", digest):
                raise ValidationError(f"{called}: sha256 is {digest!r}; expected 64 hex digits.", code="bad_hash")
            announced[called]["sha256"] = digest
    total = sum(entry["size"] for entry in announced.values())
    if total > settings.UPLOAD_LIMIT_BYTES:
        raise ValidationError(
            f"The files have {counted(total, 'byte')}; at most {settings.UPLOAD_LIMIT_BYTES} are taken (UNSQUEEZE_UPLOAD_GB).",
            code="too_large",
        )
    upload = Upload(
        pk=secrets.token_hex(16), project=project, created_by=user, name=name.strip()[:120], files=announced
    )
    upload.full_clean(exclude=["checkpoint", "created_by", "files"])
    upload.save(force_insert=True)
    folder_of(upload).mkdir(parents=True)
    return upload


def start_or_go_on(*, project: Project, user: User | None, name: str, files: Mapping[str, Mapping[str, Any]]) -> Upload:
    """The person's open upload of the same files (names and sizes), so that a reload goes on where it broke; else a new
    one. Raises ValidationError.
    """
    sizes = {called: entry.get("size") for called, entry in files.items()}
    for upload in open_of(project, user):
        if {called: entry["size"] for called, entry in upload.files.items()} == sizes:
            return upload
    return start(project=project, user=user, name=name, files=files)


def open_of(project: Project, user: User | None) -> QuerySet[Upload]:
    """A person's uploads that are not complete (None: those of the command), newest first."""
    return Upload.objects.filter(project=project, created_by=user, state=Upload.State.OPEN)


def folder_of(upload: Upload) -> Path:
    """Where its pieces are."""
    return path_of(f"uploads/{upload.pk}")


def offset_of(upload: Upload, name: str) -> int:
    """How many bytes of a file have arrived. Raises ValidationError for a name that was not announced."""
    if name not in upload.files:
        raise ValidationError(f"{name!r} was not announced for this upload.", code="unknown_file")
    return pieces.arrived(folder_of(upload) / name)


def offsets(upload: Upload) -> dict[str, int]:
    """How far each announced file is."""
    return {name: offset_of(upload, name) for name in upload.files}


def append(*, upload: Upload, name: str, offset: int, data: Iterable[bytes]) -> int:
    """Writes a piece at the end of a file; its new offset. What arrived before a break stays, and the sender asks where
    to go on. Raises WrongOffset, or ValidationError.
    """
    if upload.state != Upload.State.OPEN:
        raise ValidationError(f"This upload is {upload.get_state_display().lower()}.", code="not_open")
    offset_of(upload, name)  # refuses names that were not announced
    path, wanted = folder_of(upload) / name, upload.files[name]["size"]
    here = pieces.append(path, called=name, wanted=wanted, offset=offset, pieces=data)
    Upload.objects.filter(pk=upload.pk).update(touched_at=timezone.now())
    return here


def complete(upload: Upload) -> Checkpoint:
    """Checks sizes, hashes and layout and makes the checkpoint; asked again, it is the same one. Raises ValidationError:
    for a file that is short the upload stays open, for a wrong one that file begins again.
    """
    with locked(f"upload {upload.pk}"):
        upload.refresh_from_db()
        if upload.checkpoint is not None:
            return upload.checkpoint
        folder, sizes = folder_of(upload), offsets(upload)
        for name, entry in upload.files.items():
            if sizes[name] != entry["size"]:
                raise ValidationError(
                    f"{name}: {sizes[name]} of {counted(entry['size'], 'byte has', 'bytes have')} arrived.",
                    code="incomplete",
                )
        for name, entry in upload.files.items():
            with (folder / name).open("rb" if sizes[name] else "ab+") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != entry.setdefault("sha256", digest):
                (folder / name).unlink()
                raise ValidationError(
                    f"{name}: found sha256 {digest}, expected {entry['sha256']}; send this file again.",
                    code="wrong_hash",
                )
        details = check_content(sizes, lambda name, begin, end: _part(folder / name, begin, end))
        details |= next((about_gguf(folder / name) for name in sizes if name.endswith(".gguf")), {})
        return _keep(upload, folder, sizes, details)


def _keep(upload: Upload, folder: Path, sizes: Mapping[str, int], details: dict[str, Any]) -> Checkpoint:
    manifest = manifest_text(upload.files)
    uri = f"checkpoints/{upload.project_id}/upload-{upload.pk}"
    for name in sizes:
        put(folder / name, f"{uri}/{name}")
    write(f"{uri}/{MANIFEST}", manifest)
    weights = {name: upload.files[name]["sha256"] for name in sizes if name.endswith((".safetensors", ".gguf"))}
    digest = hashlib.sha256(repr(sorted(weights.items())).encode()).hexdigest()
    who = upload.created_by
    checkpoint = add_imported(
        project=upload.project, uri=uri, name=upload.name, weights_hash=f"files-{digest}", size=upload.size,
        details=details | {"uploaded_by": who.name if who else ""},
    )  # fmt: skip
    Upload.objects.filter(pk=upload.pk).update(state=Upload.State.COMPLETE, checkpoint=checkpoint, files=upload.files)
    upload.refresh_from_db()
    shutil.rmtree(folder, ignore_errors=True)
    return checkpoint


def discard(upload: Upload) -> None:
    """Gives an upload up."""
    shutil.rmtree(folder_of(upload), ignore_errors=True)
    upload.delete()


def remove_expired() -> int:
    """The scheduler's job: uploads that nobody has touched for two days; how many."""
    stale = Upload.objects.filter(touched_at__lt=timezone.now() - KEPT_FOR)
    removed = 0
    for upload in stale:
        discard(upload)
        removed += 1
    return removed


def _part(path: Path, begin: int, end: int) -> bytes:
    with path.open("rb") as file:
        file.seek(begin)
        return file.read(end - begin)
