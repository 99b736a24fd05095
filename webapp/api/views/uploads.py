"""Uploads of models in pieces: announce, send, ask where to go on, complete."""

from typing import Any

from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request

from webapp.api.base import InProject, operation
from webapp.api.errors import Refused
from webapp.api.parsing import Incoming, PieceParser
from webapp.api.serializers.checkpoints import (
    CheckpointSerializer,
    OffsetQuery,
    OffsetSerializer,
    UploadBody,
    UploadSerializer,
    UploadsSerializer,
)
from webapp.checkpoints import uploading
from webapp.checkpoints.models import Upload
from webapp.checkpoints.selectors import upload_in
from webapp.core.counts import counted
from webapp.runs.pieces import WrongOffset
from webapp.teams.permissions import Capability

TAG = "Uploads of models"
CONFLICT = (409,)
MOST_SHOWN = 200


class UploadsView(InProject):
    capabilities = {"POST": Capability.EDIT}

    @operation(
        "listUploads", "One's own uploads that are not complete, newest first", tag=TAG, answer=UploadsSerializer
    )
    def get(self, request: Request) -> Any:
        return {"uploads": [told(one) for one in uploading.open_of(self.project, self.user)[:MOST_SHOWN]]}

    @operation(
        "startUpload",
        "Announce the files of a model",
        tag=TAG,
        body=UploadBody,
        answer=UploadSerializer,
        status=201,
        errors=(413,),
        repeatable=True,
        description="A folder in the transformers layout, or one .gguf file. An upload that nobody touches for two days "
        "is removed.",
    )
    def post(self, request: Request, body: Any) -> Any:
        found = uploading.start(project=self.project, user=self.user, name=body["name"], files=body["files"])
        return told(found)


class UploadView(InProject):
    capabilities = {"DELETE": Capability.EDIT}

    @operation("getUpload", "How far each file is", tag=TAG, answer=UploadSerializer)
    def get(self, request: Request, upload: str) -> Any:
        return told(upload_in(self.project, upload))

    @operation("discardUpload", "Give an upload up", tag=TAG, status=204)
    def delete(self, request: Request, upload: str) -> None:
        uploading.discard(upload_in(self.project, upload))


class UploadFileView(InProject):
    capabilities = {"PUT": Capability.EDIT}
    parser_classes = [PieceParser]

    @operation(
        "sendPiece",
        "Send bytes of a file from an offset on",
        tag=TAG,
        query=OffsetQuery,
        reads={"application/octet-stream": OpenApiTypes.BINARY},
        answer=OffsetSerializer,
        errors=CONFLICT,
        description="What arrived before a connection broke stays: ask the upload for its offsets, and go on there.",
    )
    def put(self, request: Request, upload: str, name: str, query: Any, body: Any) -> Any:
        found = upload_in(self.project, upload)
        data = body.pieces() if isinstance(body, Incoming) else ()
        try:
            return {"offset": uploading.append(upload=found, name=name, offset=query["offset"], data=data)}
        except WrongOffset as error:
            message = f"The file has {counted(error.offset, 'byte')} so far, the piece begins at {query['offset']}."
            raise Refused("wrong_offset", message, offset=error.offset) from error


class UploadCompleteView(InProject):
    capabilities = {"POST": Capability.EDIT}

    @operation(
        "completeUpload",
        "Check every size and hash, and make the checkpoint",
        tag=TAG,
        answer=CheckpointSerializer,
        errors=CONFLICT,
        description="Asked again, it answers with the same checkpoint.",
    )
    def post(self, request: Request, upload: str) -> Any:
        return uploading.complete(upload_in(self.project, upload))


def told(upload: Upload) -> dict[str, Any]:
    """The upload with its files and how far each is; of one that is over nothing is left to send."""
    over = upload.state != Upload.State.OPEN
    have = {} if over else uploading.offsets(upload)
    files = [
        {"name": name, "sha256": None, **entry, "offset": have.get(name, entry["size"])}
        for name, entry in upload.files.items()
    ]
    return {
        "id": upload.pk,
        "name": upload.name,
        "state": upload.state,
        "message": upload.message,
        "checkpoint": upload.checkpoint_id,
        "files": files,
        "created_at": upload.created_at,
        "url": reverse("api:upload", args=(*upload.project.url_args, upload.pk)),
    }
