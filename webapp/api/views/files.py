"""What all downloads share."""

from typing import Any

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework.request import Request

from webapp.api.errors import Refused
from webapp.checkpoints.downloads import file_response
from webapp.checkpoints.manifests import Entry
from webapp.runs import storage

RANGE = OpenApiParameter(
    "Range", OpenApiTypes.STR, OpenApiParameter.HEADER, description="bytes=a-b: only these bytes (206)."
)
RANGES: dict[str, Any] = {
    "raw": {"application/octet-stream": OpenApiTypes.BINARY},
    "extra": (RANGE,),
    "also": {
        (206, "application/octet-stream"): OpenApiTypes.BINARY,
        304: OpenApiResponse(None, "The caller has it already (If-None-Match)"),
        416: OpenApiResponse(None, "The range lies outside the file"),
    },
    "description": "A download that broke off goes on with the header Range; If-Range with the ETag makes sure that it is "
    "still the same file. The ETag is the file's sha256, and says whether all of it arrived.",
}


def sent(request: Request, folder: str, entry: Entry) -> HttpResponseBase:
    """The file, whole or a range of it. Raises Refused when it is not there."""
    try:
        storage.stat(f"{folder}/{entry.name}")
    except FileNotFoundError as error:
        raise Refused("file_missing", f"{entry.name} is not in the file storage.") from error
    return file_response(request._request, folder, entry)
