"""Orphans: files without a row, and rows without files. What is found is explained; what goes is asked for.

Nothing is removed before it has lain still for a grace time, and every unit is judged again right before it goes. Units
of runs that are queued or at work are never judged.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import QuerySet
from django.utils import timezone

from webapp.checkpoints.models import Checkpoint
from webapp.datasets.models import Version
from webapp.files.owners import Owners, Verdict
from webapp.files.units import Unit, drafts, everything, grouped, of_project
from webapp.projects.models import Project
from webapp.runs.states import OVER
from webapp.runs.storage import path_of, remove, remove_tree, stat, walk

log = logging.getLogger(__name__)

GRACE = timedelta(hours=24)
RUNS_OF_PAGE = 200


@dataclass(frozen=True)
class Missing:
    """A row whose files are not there. `row` is a checkpoint or a version of a dataset."""

    row: Checkpoint | Version
    uri: str
    why: str


@dataclass(frozen=True)
class Found:
    """Orphans, the largest first, and rows without files."""

    orphans: list[Verdict]
    missing: list[Missing]

    @property
    def size(self) -> int:
        return sum(verdict.unit.size for verdict in self.orphans)


def find(progress: Callable[[int], object] = lambda seen: None) -> Found:
    """Everything in the storage against every row; takes as long as listing the storage does."""
    units = everything(progress)
    versions = {
        version: version.uri.rpartition("/")[0] for version in Version.objects.select_related("dataset__project")
    }
    checkpoints = _with_files(Checkpoint.objects.all())
    return Found(judged(units), _missing(units, checkpoints, versions))


def find_in(project: Project) -> Found:
    """What a project's own rows lead to, quick enough for a page: of runs the newest ones, and of them checkpoints only.
    Files of deleted runs and projects are found by `find` alone.
    """
    units = of_project(project, runs=RUNS_OF_PAGE)
    listed = project.runs.order_by("-created_at").values_list("pk", flat=True)[:RUNS_OF_PAGE]
    rows = _with_files(Checkpoint.objects.filter(project=project))
    checkpoints = [row for row in rows if row.run_id is None or row.run_id in set(listed)]
    found = Version.objects.filter(dataset__project=project).select_related("dataset__project")
    versions = {version: version.uri.rpartition("/")[0] for version in found}
    return Found(judged(units), _missing(units, checkpoints, versions))


def judged(units: Mapping[str, Unit]) -> list[Verdict]:
    """Those that are nobody's, the largest first."""
    owners = Owners.read(units)
    merged: dict[str, Unit] = {}
    for unit in units.values():
        uri = owners.unit_of(unit)
        moved = Unit(uri, unit.files, unit.size, unit.newest, unit.manifest and uri == unit.uri, unit.draft)
        merged[uri] = merged[uri].joined(moved) if uri in merged else moved
    verdicts = [verdict for unit in merged.values() if (verdict := owners.judge(unit)) is not None]
    return sorted(verdicts, key=lambda verdict: (-verdict.unit.size, verdict.unit.uri))


def is_due(verdict: Verdict, *, older_than: timedelta = GRACE) -> bool:
    """Whether it has lain still for long enough to be removed."""
    return verdict.removable and timezone.now() - verdict.unit.newest >= older_than


def remove_orphans(uris: Iterable[str], *, older_than: timedelta = GRACE) -> tuple[list[Unit], dict[str, str]]:
    """Removes units that are still nobody's and whose newest file is older; those that went, and why others stayed."""
    gone: list[Unit] = []
    kept: dict[str, str] = {}
    for uri in uris:
        verdict = _again(uri)
        if verdict is None:
            kept[uri] = "it is gone, or has an owner by now"
        elif not verdict.removable:
            kept[uri] = "it is not of this product"
        elif timezone.now() - verdict.unit.newest < older_than:
            kept[uri] = f"it changed less than {older_than.total_seconds() / 3600:g} h ago"
        else:
            try:
                _remove(verdict.unit)
            except OSError as error:
                kept[uri] = str(error)
                continue
            log.info("Removed the orphan %s (%s bytes): %s", uri, verdict.unit.size, verdict.why)
            gone.append(verdict.unit)
    return gone, kept


def _again(uri: str) -> Verdict | None:
    """The verdict on one unit as it is now."""
    units = {name: unit for name, unit in drafts().items() if name == uri} or grouped(walk(uri))
    if not units:
        try:
            units = grouped([stat(uri)])
        except (FileNotFoundError, IsADirectoryError):
            return None
    return next((verdict for verdict in judged(units) if verdict.unit.uri == uri), None)


def _remove(unit: Unit) -> None:
    if unit.draft:
        path_of(unit.uri).unlink(missing_ok=True)
    else:
        remove_tree(unit.uri)
        if not path_of(unit.uri).is_dir():
            remove(unit.uri)


def _with_files(rows: QuerySet[Checkpoint]) -> list[Checkpoint]:
    found = rows.filter(removed_at=None, stored_at__isnull=False).select_related("project__team", "run")
    return [row for row in found if row.run is None or row.run.state in OVER]


def _missing(
    units: Mapping[str, Unit], checkpoints: Iterable[Checkpoint], versions: Mapping[Version, str]
) -> list[Missing]:
    found = []
    for row in checkpoints:
        unit = units.get(row.uri)
        if unit is None:
            found.append(Missing(row, row.uri, "None of its files are in the storage."))
        elif not unit.manifest:
            found.append(Missing(row, row.uri, "Its manifest is not in the storage, so that it cannot be verified."))
    found += [
        Missing(version, version.uri, "Its file is not in the storage; runs cannot use it.")
        for version, folder in versions.items()
        if folder not in units
    ]
    return found
