"""What lies in the storage, in units that belong or go together: a checkpoint's folder, an attempt's, an upload, a dataset.

runs/<run>/attempts/<number>/checkpoints/<name>/…    one unit each
runs/<run>/attempts/<number>/…                       what else the attempt wrote
runs/<run>/…                                         what else the run has
checkpoints/<project>/<name>/…                       uploaded and imported models
datasets/<project>/<hash>/…                          versions of datasets
uploads/<project>/<token>, uploads/<upload>/…        files of datasets, and models, that are being uploaded
imports/<work>/…                                     what an import of a dataset writes
"""

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from webapp.checkpoints.manifests import MANIFEST
from webapp.core.file_storages import DRAFT, Stored
from webapp.projects.models import Project
from webapp.runs.copies import NOTES
from webapp.runs.models import Attempt
from webapp.runs.storage import LOCKS, files, files_root, walk

DEPTHS = {"runs": 2, "checkpoints": 3, "datasets": 3, "uploads": 3, "imports": 2}
_CHECKPOINT = re.compile(r"(runs/[^/]+/attempts/[^/]+/checkpoints/[^/]+)/.+")
_ATTEMPT = re.compile(r"(runs/[^/]+/attempts/[^/]+)/.+")
_MODEL_UPLOAD = re.compile(r"(uploads/[0-9a-f]{32})/.+")


@dataclass(frozen=True)
class Unit:
    """Files with a common fate. `newest` is the last change of any of them; `manifest` says whether one is among them.

    A `draft` is a file of this host's folder that a process was writing; no listing of a storage shows it.
    """

    uri: str
    files: int
    size: int
    newest: datetime
    manifest: bool = False
    draft: bool = False

    def joined(self, other: "Unit") -> "Unit":
        """This unit with the files of the other."""
        return replace(
            self,
            files=self.files + other.files,
            size=self.size + other.size,
            newest=max(self.newest, other.newest),
            manifest=self.manifest or other.manifest,
        )


def unit_uri(uri: str) -> str:
    """The unit that a file belongs to."""
    for pattern in (_CHECKPOINT, _ATTEMPT, _MODEL_UPLOAD):
        if (found := pattern.fullmatch(uri)) is not None:
            return found[1]
    parts = uri.split("/")
    return "/".join(parts[: DEPTHS.get(parts[0], 1)])


def grouped(found: Iterable[Stored], progress: Callable[[int], object] = lambda seen: None) -> dict[str, Unit]:
    """Files as units, by URI. `progress` is told how many files were seen, every ten thousand."""
    units: dict[str, Unit] = {}
    for seen, file in enumerate(found, start=1):
        if file.uri.partition("/")[0] in (LOCKS, NOTES):
            continue
        uri = unit_uri(file.uri)
        one = Unit(uri, 1, file.size, file.modified, manifest=file.uri == f"{uri}/{MANIFEST}")
        units[uri] = units[uri].joined(one) if uri in units else one
        if seen % 10_000 == 0:
            progress(seen)
    return units


def everything(progress: Callable[[int], object] = lambda seen: None) -> dict[str, Unit]:
    """All units of the storage, and drafts on this host."""
    return grouped(files().walk(""), progress) | drafts()


def of_project(project: Project, *, runs: int) -> dict[str, Unit]:
    """Units that a project's rows lead to: its models, datasets and uploads, and checkpoints of its `runs` newest runs."""
    newest = list(project.runs.order_by("-created_at").values_list("pk", flat=True)[:runs])
    attempts = Attempt.objects.filter(run__in=newest).values_list("run", "number")
    folders = [f"{kind}/{project.pk}" for kind in ("checkpoints", "datasets", "uploads")]
    folders += [f"uploads/{pk}" for pk in project.uploads.values_list("pk", flat=True)]
    folders += [f"runs/{run}/attempts/{number}/checkpoints" for run, number in attempts]
    return grouped(file for folder in folders for file in walk(folder))


def drafts() -> dict[str, Unit]:
    """Files of this host's folder that were being written, each one a unit."""
    root, found = files_root(), {}
    for where, _folders, names in os.walk(root):
        for name in names:
            if DRAFT not in name:
                continue
            path = os.path.join(where, name)
            try:
                now = os.lstat(path)
            except FileNotFoundError:
                continue
            uri = os.path.relpath(path, root)
            modified = datetime.fromtimestamp(now.st_mtime, UTC)
            found[uri] = Unit(uri, 1, now.st_size, modified, draft=True)
    return found
