"""Reads of datasets: lists, versions, and rows of a version's file."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Max, Prefetch, QuerySet
from django.shortcuts import get_object_or_404

from webapp.datasets.models import Dataset, Import, ImportState, Version
from webapp.projects.models import Project
from webapp.runs import storage
from webapp.runs.models import Run

PER_PAGE = 25
SEARCH_SECONDS = 5.0
COMPARED = 20
SEARCHED = ["id", "prompt", "answer", "completion", "split"]
COLUMNS = ["id", "prompt", "answer", "answer_type", "completion", "meta", "split", "file", "line"]


class FileMissing(Exception):
    """The version's file is not there, or cannot be read."""


def datasets_in(project: Project, *, archived: bool = False) -> QuerySet[Dataset]:
    """The project's datasets with the number of their versions and the time of the newest; their unfinished imports."""
    rows = Dataset.objects.filter(project=project, archived_at__isnull=not archived)
    open_imports = Import.objects.exclude(state=ImportState.FINISHED)
    return (
        rows.annotate(version_count=Count("versions"), newest=Max("versions__created_at"))
        .prefetch_related(Prefetch("imports", queryset=open_imports, to_attr="open_imports"), "versions")
        .select_related("project__team")
        .order_by("name")
    )


def dataset_in(project: Project, pk: int) -> Dataset:
    """One of the project's datasets; Http404 for any other."""
    return get_object_or_404(Dataset.objects.select_related("project__team"), project=project, pk=pk)


def import_in(project: Project, pk: int) -> Import:
    """One of the project's imports; Http404 for any other."""
    return get_object_or_404(Import.objects.select_related("dataset__project__team"), dataset__project=project, pk=pk)


def version_in(project: Project, pk: int) -> Version:
    """One of the project's versions; Http404 for any other."""
    return get_object_or_404(Version.objects.select_related("dataset__project__team"), dataset__project=project, pk=pk)


def versions_of(dataset: Dataset) -> QuerySet[Version]:
    """Newest first, with the number of runs that used each."""
    return dataset.versions.annotate(use_count=Count("uses")).order_by("-number")


def versions_for(project: Project) -> QuerySet[Version]:
    """What a launch form offers: versions of datasets that are not archived."""
    rows = Version.objects.filter(dataset__project=project, dataset__archived_at=None)
    return rows.select_related("dataset__project__team").order_by("-created_at")


def version_with_content(project: Project, content_hash: str) -> Version | None:
    """A version of the project by its content; one whose dataset is not archived comes first."""
    rows = Version.objects.filter(dataset__project=project, content_hash=content_hash)
    return rows.select_related("dataset__project__team").order_by("dataset__archived_at", "-created_at").first()


def versions_to_compare(project: Project) -> QuerySet[Version]:
    """The versions in which an import looks for shared problems: the newest ones."""
    return Version.objects.filter(dataset__project=project).select_related("dataset").order_by("-created_at")[:COMPARED]


def runs_with(version: Version) -> QuerySet[Run]:
    """The runs whose problems came from it, newest first."""
    return Run.objects.filter(dataset_use__version=version).select_related("project__team").order_by("-created_at")


def version_of(run: Run) -> Version | None:
    """The version that the run's problems come from, where it has one."""
    return Version.objects.filter(uses__run=run).select_related("dataset__project__team").first()


def running_imports() -> dict[int, int]:
    """Signs of life of the imports under way, by id."""
    return dict(Import.objects.filter(state=ImportState.RUNNING).values_list("pk", "beats"))


def running_claims() -> set[str]:
    """Tokens of the imports under way."""
    return set(Import.objects.filter(state=ImportState.RUNNING).values_list("claim", flat=True))


@dataclass(frozen=True)
class Rows:
    """A page of a version's rows. ``total`` counts what the page is of; ``searched`` the rows that were looked through
    (None: all)."""

    rows: list[dict[str, Any]]
    page: int
    pages: int
    total: int
    searched: int | None = None


def rows_of(
    version: Version, *, page: int = 1, search: str = "", line: int | None = None, file: str = "", split: str = ""
) -> Rows:
    """Rows as dictionaries. A search ends after `SEARCH_SECONDS`, and says how far it came; a line names one row. Raises
    FileMissing.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        path = storage.fetch(version.uri, sha256=version.sha256, size=version.size_bytes)
        if line is not None:
            filters = [("line", "=", line)] + ([("file", "=", file)] if file else [])
            found = pq.read_table(path, columns=COLUMNS, filters=filters)
            return Rows(_plain(found.slice(0, PER_PAGE)), 1, 1, found.num_rows)
        with pq.ParquetFile(path) as parquet:
            if not search and not split:
                return _page(parquet, range(parquet.metadata.num_rows), page)
            places, looked = _found(parquet, search, split)
            return _page(parquet, places, page, searched=looked if looked < parquet.metadata.num_rows else None)
    except (OSError, pa.ArrowException) as error:
        raise FileMissing(f"{version.uri} cannot be read: {error}") from error


def _found(parquet: Any, search: str, split: str) -> tuple[list[int], int]:
    """The places of the rows of the split that hold the text, in any case, and how many rows were looked through."""
    import pyarrow.compute as pc

    places: list[int] = []
    looked, until = 0, time.monotonic() + SEARCH_SECONDS
    for batch in parquet.iter_batches(batch_size=10_000, columns=SEARCHED if search else ["split"]):
        fits = pc.equal(batch.column("split"), split) if split else None
        if search:
            holds = _holding(batch, search)
            fits = holds if fits is None else pc.and_(fits, holds)
        places += pc.add(pc.indices_nonzero(fits).cast("int64"), looked).to_pylist()
        looked += batch.num_rows
        if time.monotonic() > until:
            break
    return places, looked


def _holding(batch: Any, search: str) -> Any:
    """Which rows of the batch hold the text in id, prompt, answer or solution."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def matched(texts: Any) -> Any:
        return pc.fill_null(pc.match_substring(texts, search, ignore_case=True), False)

    prompt = batch.column("prompt")
    said = pc.list_parent_indices(prompt).filter(matched(prompt.flatten().field("content")))
    holds = pc.is_in(pa.array(range(batch.num_rows), pa.int64()), value_set=said.cast("int64"))
    for name in ("id", "answer", "completion"):
        holds = pc.or_(holds, matched(batch.column(name)))
    return holds


def _page(parquet: Any, places: Sequence[int], page: int, *, searched: int | None = None) -> Rows:
    """A page of the rows at these places, which ascend; only row groups with one of them are read."""
    pages = max(1, -(-len(places) // PER_PAGE))
    page = min(max(1, page), pages)
    wanted = places[(page - 1) * PER_PAGE : page * PER_PAGE]
    rows: list[dict[str, Any]] = []
    begin = 0
    for group in range(parquet.metadata.num_row_groups):
        end = begin + parquet.metadata.row_group(group).num_rows
        if here := [place - begin for place in wanted if begin <= place < end]:
            rows += _plain(parquet.read_row_group(group, columns=COLUMNS).take(here))
        begin = end
    return Rows(rows, page, pages, len(places), searched)


def _plain(table: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return [{**row, "meta": json.loads(row["meta"] or "{}")} for row in rows]
