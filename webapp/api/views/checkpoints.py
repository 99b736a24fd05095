"""Checkpoints: list, look, download, pin, verify, remove; and what a project keeps."""

from typing import Any

from django.http import Http404
from django.http.response import HttpResponseBase
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request

from webapp.api.base import InProject, operation
from webapp.api.errors import Refused
from webapp.api.serializers.checkpoints import (
    CheckpointChanges,
    CheckpointDetailSerializer,
    CheckpointSerializer,
    CheckpointsQuery,
    ImportBody,
    RemovedSerializer,
    RetentionBody,
    RetentionQuery,
    RetentionSerializer,
)
from webapp.api.views.files import RANGES, sent
from webapp.checkpoints import retention, services
from webapp.checkpoints.downloads import entry_in, tar_response
from webapp.checkpoints.importing import import_from_server
from webapp.checkpoints.manifests import Damaged, Entry, read_manifest
from webapp.checkpoints.models import Checkpoint, Retention
from webapp.checkpoints.retention import Rule
from webapp.checkpoints.selectors import checkpoint_in, checkpoints_in, checkpoints_of, runs_from
from webapp.runs.selectors import run_in
from webapp.teams.permissions import Capability

TAG = "Checkpoints"
CONFLICT = (409,)


class CheckpointsView(InProject):
    capabilities = {"POST": Capability.EDIT}

    @operation(
        "listCheckpoints",
        "Checkpoints of the project that have their files, or all of one run",
        tag=TAG,
        query=CheckpointsQuery,
        paged=CheckpointSerializer,
    )
    def get(self, request: Request, query: Any) -> Any:
        rows = checkpoints_of(run_in(self.project, query["run"])) if "run" in query else checkpoints_in(self.project)
        return rows.select_related("project__team"), "-created_at"

    @operation(
        "importCheckpoint",
        "Import a model that lies on the server",
        tag=TAG,
        body=ImportBody,
        answer=CheckpointSerializer,
        status=201,
        errors=CONFLICT,
        description="In one of the folders that the installation offers (UNSQUEEZE_IMPORT_FOLDERS). The same weights are "
        "imported once, so that asking again changes nothing. Models elsewhere are uploaded.",
    )
    def post(self, request: Request, body: Any) -> Any:
        return import_from_server(project=self.project, path=body["path"], name=body.get("name", ""))


class CheckpointView(InProject):
    capabilities = {"PATCH": Capability.EDIT, "DELETE": Capability.EDIT}

    @operation("getCheckpoint", "A checkpoint and its files", tag=TAG, answer=CheckpointDetailSerializer)
    def get(self, request: Request, checkpoint: int) -> Any:
        found = checkpoint_in(self.project, checkpoint)
        found.files = [  # type: ignore[attr-defined]
            {"name": one.name, "size": one.size, "sha256": one.sha256, "url": self._url(found, one.name)}
            for one in _files(found)
        ]
        found.children = list(runs_from(found).values_list("pk", flat=True))  # type: ignore[attr-defined]
        return found

    def _url(self, checkpoint: Checkpoint, name: str) -> str:
        return reverse("api:checkpoint-file", args=[*self.project.url_args, checkpoint.pk, name])

    @operation(
        "pinCheckpoint",
        "Pin a checkpoint, or let it go",
        tag=TAG,
        body=CheckpointChanges,
        answer=CheckpointSerializer,
        errors=CONFLICT,
        description="No retention removes a pinned one, and new runs are offered it as a base.",
    )
    def patch(self, request: Request, checkpoint: int, body: Any) -> Any:
        return services.set_pinned(checkpoint=checkpoint_in(self.project, checkpoint), pinned=body["pinned"])

    @operation(
        "removeCheckpoint",
        "Remove a checkpoint's files",
        tag=TAG,
        answer=CheckpointSerializer,
        errors=CONFLICT,
        description="Its row stays for lineage. What a run needs, and what is pinned, is refused.",
    )
    def delete(self, request: Request, checkpoint: int) -> Any:
        return retention.delete(checkpoint_in(self.project, checkpoint))


class CheckpointVerifyView(InProject):
    capabilities = {"POST": Capability.EDIT}

    @operation(
        "verifyCheckpoint",
        "Compare every file with the manifest",
        tag=TAG,
        answer=CheckpointSerializer,
        errors=CONFLICT,
        description="`damage` of the answer says what was found; empty: every file is as it was saved.",
    )
    def post(self, request: Request, checkpoint: int) -> Any:
        found = checkpoint_in(self.project, checkpoint)
        if not found.available:
            raise Refused("no_files")
        if found.size_bytes > services.LARGEST_VERIFIED:
            raise Refused("too_long_to_wait", f"On the server: manage.py files --verify {found.pk}")
        return services.verify_checkpoint(found)


class CheckpointFileView(InProject):
    @operation("downloadFile", "One file of a checkpoint", tag=TAG, **RANGES)
    def get(self, request: Request, checkpoint: int, name: str) -> HttpResponseBase:
        found = checkpoint_in(self.project, checkpoint)
        entry = entry_in(found, name) if _files(found) else None
        if entry is None:
            raise Http404
        return sent(request, found.uri, entry)


class CheckpointTarView(InProject):
    @operation(
        "downloadCheckpoint", "All files of a checkpoint and its manifest as one tar", tag=TAG,
        raw={"application/x-tar": OpenApiTypes.BINARY},
    )  # fmt: skip
    def get(self, request: Request, checkpoint: int) -> HttpResponseBase:
        found = checkpoint_in(self.project, checkpoint)
        if not _files(found):
            raise Refused("file_missing", f"{found.name} has no files, or no manifest that lists them.")
        return tar_response(request._request, found)


def _files(checkpoint: Checkpoint) -> list[Entry]:
    """What the manifest lists; nothing once the files were removed, or without a manifest that can be read."""
    try:
        return read_manifest(checkpoint.uri) if checkpoint.available else []
    except (FileNotFoundError, Damaged):
        return []


class RetentionView(InProject):
    """What the project keeps of every run that is over."""

    capabilities = {"GET": Capability.MANAGE, "PUT": Capability.MANAGE}

    @operation(
        "getRetention",
        "What a project keeps, and what that would remove",
        tag=TAG,
        query=RetentionQuery,
        answer=RetentionSerializer,
        description="Settings that are not given are those of the project's rule. Nothing is removed.",
    )
    def get(self, request: Request, query: Any) -> Any:
        saved = retention.project_rule(self.project)
        for name, value in query.items():
            setattr(saved, name, value)
        return self._preview(saved)

    @operation(
        "setRetention",
        "Change what a project keeps",
        tag=TAG,
        body=RetentionBody,
        answer=RetentionSerializer,
        description="Nothing is removed by this alone, unless it says `automatic`: then the scheduler does, once a day.",
    )
    def put(self, request: Request, body: Any) -> Any:
        return self._preview(retention.set_rule(project=self.project, **body))

    def _preview(self, saved: Retention) -> Any:
        verdicts = retention.plan_for_project(self.project, rule_of(saved))
        goes = [verdict for verdict in verdicts if verdict.goes]
        return {"rule": saved, "verdicts": verdicts, "bytes": sum(one.checkpoint.size_bytes for one in goes)}


class RetentionApplyView(InProject):
    capabilities = {"POST": Capability.MANAGE}

    @operation("applyRetention", "Remove now what the project's rule does not keep", tag=TAG, answer=RemovedSerializer)
    def post(self, request: Request) -> Any:
        gone = retention.apply_to_project(self.project, rule_of(retention.project_rule(self.project)))
        return {"removed": [row.pk for row in gone]}


def rule_of(saved: Retention) -> Rule:
    return Rule(keep=saved.keep, keep_best=saved.keep_best, metric=saved.best_metric)
