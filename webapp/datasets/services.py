"""Writes about datasets: uploads, imports from their mapping to a version, use by runs, archiving and removal."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from webapp.accounts.models import User
from webapp.datasets.models import Dataset, DatasetUse, Import, ImportState, Version
from webapp.projects.models import Project
from webapp.runs import storage
from webapp.runs.models import Run

ROWS_FILE = "rows.parquet"


class ImportLost(Exception):
    """Another scheduler has taken the import over, or someone discarded it; nothing more may be written."""


def create_dataset(*, project: Project, name: str, user: User | None) -> Dataset:
    """A dataset without versions. Raises ValidationError for an empty or taken name."""
    dataset = Dataset(project=project, name=name.strip(), created_by=user)
    dataset.full_clean()
    dataset.save()
    return dataset


def check_size(size: int) -> None:
    """Raises ValidationError for an upload above the installation's limit."""
    if size > settings.UPLOAD_LIMIT_BYTES:
        raise ValidationError(
            f"The file has {size / 1e9:.1f} GB, at most {settings.UPLOAD_LIMIT_BYTES / 1e9:.0f} GB can be uploaded "
            "(UNSQUEEZE_UPLOAD_GB); on the server, manage.py import_dataset takes any size.",
            code="too_large",
        )


def new_uri(project: Project) -> str:
    """Where an upload will lie: never decided by the name of its file."""
    return storage.checked(f"uploads/{project.pk}/{secrets.token_hex(8)}")


def part_of(job: Import) -> Path:
    """Where the file of an import lies on this host while it arrives in pieces."""
    return storage.path_of(f"{job.uri}.part")


def add_upload(*, dataset: Dataset, file: UploadedFile, user: User | None) -> Import:
    """Stores an uploaded file, piece by piece, as an import that waits for its mapping. Raises ValidationError."""
    check_size(file.size or 0)
    with _draft(dataset.project, file.name or "upload") as draft:
        with draft.path.open("wb") as out:
            for chunk in file.chunks(1 << 20):
                out.write(chunk)
        return _stored(dataset, draft, user)


def add_file(*, dataset: Dataset, path: Path, user: User | None = None) -> Import:
    """Like an upload, from a file on this host. A save_to_disk folder is packed first."""
    import shutil
    import tarfile

    name = path.name + (".tar" if path.is_dir() else "")
    with _draft(dataset.project, name) as draft:
        if path.is_dir():
            with tarfile.open(draft.path, "w") as packed:
                packed.add(path, arcname=path.name)
        else:
            shutil.copyfile(path, draft.path)
        return _stored(dataset, draft, user)


@dataclass(frozen=True)
class _Draft:
    path: Path
    uri: str
    name: str


class _draft:
    """A local file to write an upload to, gone when the block is left."""

    def __init__(self, project: Project, name: str) -> None:
        # The name is kept for people; where the file lies never depends on it.
        clean = PurePosixPath(name.replace("\\", "/")).name[-200:] or "upload"
        token = secrets.token_hex(8)
        uri = storage.checked(f"uploads/{project.pk}/{token}")
        path = storage.path_of(f"uploads/{project.pk}/.draft.{token}")
        self.draft = _Draft(path, uri, clean)

    def __enter__(self) -> _Draft:
        self.draft.path.parent.mkdir(parents=True, exist_ok=True)
        return self.draft

    def __exit__(self, *_error: object) -> None:
        self.draft.path.unlink(missing_ok=True)


def _stored(dataset: Dataset, draft: _Draft, user: User | None) -> Import:
    size = draft.path.stat().st_size
    if size == 0:
        raise ValidationError("The file is empty.", code="empty")
    storage.put(draft.path, draft.uri)
    return Import.objects.create(dataset=dataset, filename=draft.name, uri=draft.uri, size_bytes=size, created_by=user)


def start_import(*, job: Import, mapping: Mapping[str, Any]) -> Import:
    """Queues an import under a mapping; also one that failed, from its beginning. One that is under way stays as it is."""
    started = Import.objects.filter(pk=job.pk, state__in=(ImportState.MAPPING, ImportState.FAILED))
    started.update(
        state=ImportState.QUEUED,
        mapping=dict(mapping),
        message="",
        broken=None,
        rows=0,
        share=0,
        claim="",
        ended_at=None,
    )
    job.refresh_from_db()
    return job


def change_mapping(*, job: Import) -> Import:
    """A failed import waits for another mapping."""
    Import.objects.filter(pk=job.pk, state=ImportState.FAILED).update(state=ImportState.MAPPING, message="")
    job.refresh_from_db()
    return job


def discard(*, job: Import) -> None:
    """Removes an import that is not finished, with its file. A dataset without anything else goes too."""
    with transaction.atomic():
        Import.objects.filter(pk=job.pk).exclude(state=ImportState.FINISHED).delete()
        dataset = job.dataset
        if not dataset.versions.exists() and not dataset.imports.exists():
            dataset.delete()
    _remove_upload(job)


# The scheduler's side


def claim_next() -> Import | None:
    """The import that has waited longest, claimed by compare-and-swap; None when none waits."""
    waiting = Import.objects.filter(state=ImportState.QUEUED).order_by("created_at", "pk")[:5]
    return next((claimed for job in waiting if (claimed := claim(job=job)) is not None), None)


def claim(*, job: Import) -> Import | None:
    """A queued import with the right to run it; None when another has it."""
    queued = Import.objects.filter(pk=job.pk, state=ImportState.QUEUED)
    if not queued.update(state=ImportState.RUNNING, claim=secrets.token_hex(8)):
        return None
    job.refresh_from_db()
    return job


def beat(*, job: Import, rows: int, share: float) -> None:
    """A sign of life with the progress. Raises ImportLost."""
    _mine(job).update(rows=rows, share=share, beats=F("beats") + 1)
    if not _mine(job).exists():
        raise ImportLost


def _mine(job: Import) -> Any:
    return Import.objects.filter(pk=job.pk, claim=job.claim, state=ImportState.RUNNING)


def fail(*, job: Import, message: str, broken: Mapping[str, Any] | None = None) -> None:
    """Ends an import that is still the caller's."""
    _mine(job).update(state=ImportState.FAILED, message=message, broken=broken, claim="", ended_at=timezone.now())


def abandon(*, job_id: int, beats: int) -> bool:
    """Ends an import whose scheduler has shown no sign of life since `beats`; whether it was."""
    text = "The scheduler that imported this file went away in the middle. Nothing was kept; try again."
    found = Import.objects.filter(pk=job_id, state=ImportState.RUNNING, beats=beats)
    return bool(found.update(state=ImportState.FAILED, message=text, claim="", ended_at=timezone.now()))


def publish(*, job: Import, folder: Path) -> Version:
    """Turns the tool's folder into a version: the file is stored, the row made, the upload removed. The same content is the
    same version. Raises ImportLost."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    content_hash = report["content_hash"]
    dataset = job.dataset
    uri = storage.checked(f"datasets/{dataset.project_id}/{content_hash[:32]}/{ROWS_FILE}")
    stored = Version.objects.filter(dataset__project_id=dataset.project_id, content_hash=content_hash).first()
    if stored is None:
        storage.put(folder / ROWS_FILE, uri)
    with transaction.atomic():
        if not _mine(job).select_for_update().exists():
            raise ImportLost
        Dataset.objects.select_for_update().get(pk=dataset.pk)
        version = Version.objects.filter(dataset=dataset, content_hash=content_hash).first()
        text = f"The content is that of version {version.number}; nothing was copied." if version else ""
        if version is None:
            newest = Version.objects.filter(dataset=dataset).order_by("-number").first()
            version = Version.objects.create(
                dataset=dataset,
                number=newest.number + 1 if newest else 1,
                content_hash=content_hash,
                uri=uri,
                # Another import may have written other bytes of the same content first: those are what lies there.
                sha256=stored.sha256 if stored else report["sha256"],
                size_bytes=stored.size_bytes if stored else report["bytes"],
                rows=report["rows"],
                mapping=job.mapping,
                report=report,
                filename=job.filename,
                created_by=job.created_by,
            )
        _mine(job).update(
            state=ImportState.FINISHED,
            version=version,
            message=text,
            rows=report["read"],
            share=1,
            claim="",
            ended_at=timezone.now(),
        )
    storage.remove(job.uri)
    return version


# Use, archive, removal


def record_use(*, run: Run, version: Version) -> None:
    """Lineage of a run."""
    DatasetUse.objects.update_or_create(run=run, defaults={"version": version})


def set_archived(*, dataset: Dataset, archived: bool) -> None:
    """Takes a dataset out of what launch forms offer, or puts it back."""
    dataset.archived_at = timezone.now() if archived else None
    dataset.save(update_fields=["archived_at"])


def remove_version(*, version: Version) -> None:
    """Removes a version and its file. Raises ValidationError while a run names it."""
    with transaction.atomic():
        used = DatasetUse.objects.filter(version=version).select_related("run")[:3]
        if used:
            names = ", ".join(use.run.name for use in used)
            raise ValidationError(
                f"{version} is used by runs ({names}) and stays, so that they can be resumed and explained; archive the "
                "dataset instead.",
                code="used",
            )
        version.delete()
        shared = Version.objects.filter(uri=version.uri).exists()
    if not shared:
        storage.remove_tree(str(PurePosixPath(version.uri).parent))


def remove_dataset(*, dataset: Dataset) -> None:
    """Removes a dataset with its versions and uploads. Raises ValidationError while a run names one of them."""
    # Used ones first, so that a refusal comes before anything is removed.
    for version in sorted(dataset.versions.all(), key=lambda one: not one.uses.exists()):
        remove_version(version=version)
    uploads = list(dataset.imports.exclude(state=ImportState.FINISHED))
    dataset.delete()
    for job in uploads:
        _remove_upload(job)


def _remove_upload(job: Import) -> None:
    storage.remove(job.uri)
    part_of(job).unlink(missing_ok=True)
