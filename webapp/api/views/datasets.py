"""Datasets, uploads and their imports, versions and rows."""

from pathlib import PurePosixPath
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request

from webapp.api.base import InProject, operation
from webapp.api.errors import Refused
from webapp.api.parsing import Incoming, PieceParser
from webapp.api.serializers.datasets import (
    DatasetBody,
    DatasetChanges,
    DatasetDetailSerializer,
    DatasetSerializer,
    DatasetsQuery,
    ImportSerializer,
    InspectionSerializer,
    MappingBody,
    RowsQuery,
    RowsSerializer,
    UploadQuery,
    VersionDetailSerializer,
    VersionSerializer,
)
from webapp.api.views.files import RANGES, sent
from webapp.checkpoints.manifests import Entry
from webapp.datasets import selectors, services
from webapp.datasets.models import Import, ImportState
from webapp.datasets.tool import ToolError, inspect
from webapp.runs import storage
from webapp.teams.permissions import Capability

TAG = "Datasets"
EDIT = {"POST": Capability.EDIT, "PATCH": Capability.EDIT, "DELETE": Capability.EDIT}
CONFLICT, UNREADABLE = (409,), (422,)


class DatasetsView(InProject):
    capabilities = EDIT

    @operation("listDatasets", "The project's datasets", tag=TAG, query=DatasetsQuery, paged=DatasetSerializer)
    def get(self, request: Request, query: Any) -> Any:
        return selectors.datasets_in(self.project, archived=query["archived"]), "name"

    @operation(
        "createDataset", "Make a dataset", tag=TAG, body=DatasetBody, answer=DatasetSerializer, status=201,
        repeatable=True,
    )  # fmt: skip
    def post(self, request: Request, body: Any) -> Any:
        return services.create_dataset(project=self.project, name=body["name"], user=self.user)


class DatasetView(InProject):
    capabilities = EDIT

    @operation("getDataset", "A dataset, and its imports under way", tag=TAG, answer=DatasetDetailSerializer)
    def get(self, request: Request, dataset: int) -> Any:
        found = selectors.dataset_in(self.project, dataset)
        found.unfinished = found.imports.exclude(state=ImportState.FINISHED)  # type: ignore[attr-defined]
        return found

    @operation(
        "archiveDataset", "Archive a dataset, or take it back", tag=TAG, body=DatasetChanges, answer=DatasetSerializer
    )
    def patch(self, request: Request, dataset: int, body: Any) -> Any:
        found = selectors.dataset_in(self.project, dataset)
        services.set_archived(dataset=found, archived=body["archived"])
        return found

    @operation("removeDataset", "Remove a dataset that no run uses", tag=TAG, status=204, errors=CONFLICT)
    def delete(self, request: Request, dataset: int) -> None:
        services.remove_dataset(dataset=selectors.dataset_in(self.project, dataset))


class DatasetVersionsView(InProject):
    @operation("listVersions", "A dataset's versions, newest first", tag=TAG, paged=VersionSerializer)
    def get(self, request: Request, dataset: int, query: Any) -> Any:
        found = selectors.dataset_in(self.project, dataset)
        return selectors.versions_of(found).select_related("dataset__project__team"), "-number"


class DatasetUploadView(InProject):
    capabilities = EDIT
    parser_classes = [PieceParser]

    @operation(
        "uploadDataset",
        "Upload a file for another version",
        tag=TAG,
        query=UploadQuery,
        reads={"application/octet-stream": OpenApiTypes.BINARY},
        answer=ImportSerializer,
        status=201,
        description="The body is the file. Its import then waits to be started, with a mapping or the recognised one.",
    )
    def post(self, request: Request, dataset: int, query: Any, body: Any) -> Any:
        found = selectors.dataset_in(self.project, dataset)
        if not isinstance(body, Incoming):
            raise Refused("invalid", fields=[("", "is empty; expected the file.")])
        file = UploadedFile(body, query["filename"], size=body.size or 0)  # type: ignore[arg-type]
        return services.add_upload(dataset=found, file=file, user=self.user)


class DatasetImportView(InProject):
    capabilities = EDIT

    @operation("getImport", "How far an import is, and how it ended", tag=TAG, answer=ImportSerializer)
    def get(self, request: Request, job: int) -> Any:
        return selectors.import_in(self.project, job)

    @operation("discardImport", "Remove an upload that has not become a version", tag=TAG, status=204)
    def delete(self, request: Request, job: int) -> None:
        services.discard(job=selectors.import_in(self.project, job))


class DatasetInspectionView(InProject):
    capabilities = EDIT

    @operation(
        "inspectUpload",
        "What an uploaded file holds, and its first 20 rows under a mapping",
        tag=TAG,
        body=MappingBody,
        answer=InspectionSerializer,
        errors=UNREADABLE,
    )
    def post(self, request: Request, job: int, body: Any) -> Any:
        return _looked(selectors.import_in(self.project, job), body.get("mapping"))


class DatasetStartView(InProject):
    capabilities = EDIT

    @operation(
        "startImport",
        "Start an import, or a failed one again",
        tag=TAG,
        body=MappingBody,
        answer=ImportSerializer,
        errors=UNREADABLE,
        description="The scheduler imports; ask the import how far it is. One that is under way or finished stays as it "
        "is. A mapping that does not fit is refused here with what is wrong.",
    )
    def post(self, request: Request, job: int, body: Any) -> Any:
        found = selectors.import_in(self.project, job)
        if found.state not in (ImportState.MAPPING, ImportState.FAILED):
            return found
        mapping = _looked(found, body.get("mapping", found.mapping))["mapping"]
        return services.start_import(job=found, mapping=mapping)


def _looked(job: Import, mapping: Any) -> dict[str, Any]:
    """What the trainer's command says of the upload. Raises Refused."""
    try:
        return inspect(storage.fetch(job.uri, size=job.size_bytes), job.filename, mapping)
    except ToolError as error:
        raise Refused("unreadable_file", str(error)) from error
    except FileNotFoundError as error:
        raise Refused("file_missing", "The upload is not there any more; upload it again.") from error


class VersionView(InProject):
    capabilities = EDIT

    @operation("getVersion", "A version with what its import found", tag=TAG, answer=VersionDetailSerializer)
    def get(self, request: Request, version: int) -> Any:
        found = selectors.version_in(self.project, version)
        found.run_ids = list(selectors.runs_with(found).values_list("pk", flat=True)[:200])  # type: ignore[attr-defined]
        return found

    @operation("removeVersion", "Remove a version that no run uses", tag=TAG, status=204, errors=CONFLICT)
    def delete(self, request: Request, version: int) -> None:
        services.remove_version(version=selectors.version_in(self.project, version))


class VersionRowsView(InProject):
    @operation("listRows", "Rows of a version", tag=TAG, query=RowsQuery, answer=RowsSerializer)
    def get(self, request: Request, version: int, query: Any) -> Any:
        try:
            return selectors.rows_of(
                selectors.version_in(self.project, version),
                page=query["page"],
                search=query.get("search", ""),
                line=query.get("line"),
                file=query.get("file", ""),
                split=query.get("split", ""),
            )
        except selectors.FileMissing as error:
            raise Refused("file_missing", str(error)) from error


class VersionFileView(InProject):
    @operation(
        "downloadVersion",
        "A version as Parquet",
        tag=TAG,
        **RANGES,
    )
    def get(self, request: Request, version: int) -> HttpResponseBase:
        found = selectors.version_in(self.project, version)
        path = PurePosixPath(found.uri)
        return sent(request, str(path.parent), Entry(path.name, found.size_bytes, found.sha256))
