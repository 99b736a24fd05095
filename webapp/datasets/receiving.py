"""A dataset's file that arrives in pieces: announce it, send pieces, complete. `services.add_upload` takes one at once.

Until it is complete the file lies in this installation's folder, as `services.part_of` says.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from typing import Any

from django.core.exceptions import ValidationError
from django.utils import timezone

from webapp.accounts.models import User
from webapp.core.counts import counted
from webapp.datasets import services
from webapp.datasets.models import Dataset, Import, ImportState
from webapp.projects.models import Project
from webapp.runs import pieces, storage

KEPT_FOR = timedelta(days=2)


def start_or_go_on(
    *, project: Project, user: User, name: str, files: Mapping[str, Mapping[str, Any]], dataset: Dataset | None = None
) -> Import:
    """The person's open upload of the same file (name and size) into the same dataset, else a new one: into `dataset`, or
    into a new dataset of that name. Raises ValidationError.
    """
    if len(files) != 1:
        raise ValidationError(
            f"Found {counted(len(files), 'file')}, expected one; pack a folder as .tar or .zip.", code="not_one"
        )
    ((filename, entry),) = files.items()
    size = entry.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ValidationError(f"{filename}: its size is {size!r}; expected bytes, at least one.", code="bad_size")
    services.check_size(size)
    filename = PurePosixPath(filename.replace("\\", "/")).name[-200:] or "upload"
    begun = Import.objects.filter(
        state=ImportState.RECEIVING, created_by=user, dataset__project=project, filename=filename, size_bytes=size
    )
    begun = begun.filter(dataset=dataset) if dataset else begun.filter(dataset__name=name.strip())
    if (found := begun.first()) is not None:
        return found
    target = dataset or services.create_dataset(project=project, name=name, user=user)
    job = Import.objects.create(
        dataset=target, state=ImportState.RECEIVING, filename=filename, uri=services.new_uri(project), size_bytes=size,
        created_by=user,
    )  # fmt: skip
    services.part_of(job).parent.mkdir(parents=True, exist_ok=True)
    return job


def offset_of(job: Import) -> int:
    """How many bytes have arrived."""
    return pieces.arrived(services.part_of(job)) if job.state == ImportState.RECEIVING else job.size_bytes


def append(*, job: Import, offset: int, data: Iterable[bytes]) -> int:
    """Writes a piece at the end of the file; the new offset. Raises WrongOffset, or ValidationError."""
    if job.state != ImportState.RECEIVING:
        raise ValidationError("This upload is complete.", code="not_open")
    path = services.part_of(job)
    return pieces.append(path, called=job.filename, wanted=job.size_bytes, offset=offset, pieces=data)


def complete(job: Import) -> Import:
    """Stores the file; the import then waits for its mapping. Asked again, nothing happens. Raises ValidationError."""
    with storage.locked(f"upload of import {job.pk}"):
        job.refresh_from_db()
        if job.state != ImportState.RECEIVING:
            return job
        if (here := offset_of(job)) != job.size_bytes:
            raise ValidationError(
                f"{here} of {counted(job.size_bytes, 'byte has', 'bytes have')} arrived.", code="incomplete"
            )
        storage.put(services.part_of(job), job.uri)
        Import.objects.filter(pk=job.pk, state=ImportState.RECEIVING).update(state=ImportState.MAPPING)
        services.part_of(job).unlink(missing_ok=True)
        job.refresh_from_db()
        return job


def remove_expired() -> int:
    """The scheduler's job: uploads to which nothing was added for two days; how many."""
    stale = [
        job for job in Import.objects.filter(state=ImportState.RECEIVING) if _touched(job) < timezone.now() - KEPT_FOR
    ]
    for job in stale:
        services.discard(job=job)
    return len(stale)


def _touched(job: Import) -> datetime:
    path = services.part_of(job)
    return datetime.fromtimestamp(path.stat().st_mtime, tz=job.created_at.tzinfo) if path.exists() else job.created_at
