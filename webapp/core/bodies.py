"""What `static/js/upload.js` sends: an announcement of files as JSON, then pieces of them. Refusals are JSON too."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.http import HttpRequest, JsonResponse

PIECE = 8 << 20
LARGEST_ANNOUNCEMENT = 1 << 20
UNSTORABLE = re.compile(r"[\0\ud800-\udfff]")


def announcement(request: HttpRequest) -> tuple[str, dict[str, Mapping[str, Any]]]:
    """(name, files by name) of {name, files: {name: {size}}}. Raises ValidationError, ValueError or RecursionError."""
    _check_type(request, "application/json")
    if int(request.headers.get("Content-Length") or 0) > LARGEST_ANNOUNCEMENT:
        raise ValidationError("The list of files is too long.", code="too_many")
    document = json.loads(request.body)
    files = document.get("files") if isinstance(document, dict) else None
    if not isinstance(files, dict) or not all(isinstance(entry, dict) for entry in files.values()):
        raise ValidationError("Expected JSON with a name and files.", code="bad_request")
    name = str(document.get("name", ""))
    if UNSTORABLE.search(name + "".join(files)):
        raise ValidationError("A name holds a NUL or half a character.", code="bad_request")
    return name, files


def piece(request: HttpRequest) -> tuple[int, Iterator[bytes]]:
    """(offset, bytes) of a piece; the offset stands in the query. Raises ValidationError."""
    offset = request.GET.get("offset", "")
    if not offset.isdecimal() or len(offset) > 18:
        raise ValidationError(f"offset is {offset!r}; expected a number of bytes.", code="bad_offset")
    if int(request.headers.get("Content-Length") or 0) > PIECE:
        raise ValidationError(f"A piece has at most {PIECE} bytes.", code="too_large")
    _check_type(request, "application/octet-stream")
    return int(offset), _blocks(request)


def refused(error: ValidationError | ValueError | RecursionError) -> JsonResponse:
    """422 with the reason."""
    text: Any = " ".join(error.messages) if isinstance(error, ValidationError) else f"This is no JSON: {error}"
    return JsonResponse({"message": text}, status=422)


def _check_type(request: HttpRequest, expected: str) -> None:
    """Forms are refused: looking for their token has read the body already."""
    if request.content_type != expected:
        raise ValidationError(f"Expected {expected}, found {request.content_type or 'no type'!r}.", code="bad_type")


def _blocks(request: HttpRequest) -> Iterator[bytes]:
    while data := request.read(1 << 20):
        yield data
