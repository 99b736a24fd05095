"""Bodies: JSON that every database can store, of a bounded size."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import JSONRenderer
from rest_framework.utils.json import strict_constant

from webapp.api.errors import Refused
from webapp.core.counts import counted

LARGEST_JSON = 1_000_000
LARGEST_EVENTS = 8_000_000
DEEPEST = 64


def read(stream: Any, largest: int) -> bytes:
    """The whole body; a larger one is refused without being read."""
    data: bytes = stream.read(largest + 1)
    if len(data) > largest:
        raise Refused("too_large", f"The body is larger than {largest} bytes, the most that this operation reads.")
    return data


class StrictJSONParser(BaseParser):
    """UTF-8, no NaN or infinity, no NUL or half a surrogate pair in any text, no more than `DEEPEST` levels."""

    media_type = "application/json"
    renderer_class = JSONRenderer

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        data = read(stream, LARGEST_JSON)
        try:
            found = json.loads(data.decode("utf-8"), parse_constant=strict_constant)
        except (ValueError, RecursionError) as error:
            raise Refused("malformed", f"The body is no JSON that can be read: {str(error)[:200]}") from error
        _check(found, "", 0)
        return found


class EventsParser(BaseParser):
    """JSON lines as they are: `trainer.contract` reads them."""

    media_type = "application/x-ndjson"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        return read(stream, LARGEST_EVENTS)


class PieceParser(BaseParser):
    """A file or a piece of one, as it comes: nothing of it is held in memory."""

    media_type = "application/octet-stream"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        length = str((parser_context or {})["request"].META.get("CONTENT_LENGTH") or "")
        announced = int(length) if length.isascii() and length.isdigit() else None
        return Incoming(stream, announced)


class Incoming:
    """A body that is read in pieces; one that ends early or is larger than UNSQUEEZE_UPLOAD_GB raises Refused."""

    def __init__(self, stream: Any, announced: int | None) -> None:
        self.stream, self.size, self.have = stream, announced, 0
        if announced is not None:
            self._bound(announced)

    def read(self, size: int) -> bytes:
        """The next bytes; none at the end."""
        data: bytes = self.stream.read(size)
        self.have += len(data)
        self._bound(self.have)
        if not data and self.size is not None and self.have < self.size:
            raise Refused("malformed", f"The body broke off after {self.have} of {counted(self.size, 'byte')}.")
        return data

    def pieces(self) -> Iterator[bytes]:
        """The whole body, about a megabyte at a time."""
        while data := self.read(1 << 20):
            yield data

    def _bound(self, size: int) -> None:
        if size > settings.UPLOAD_LIMIT_BYTES:
            most = settings.UPLOAD_LIMIT_BYTES
            raise Refused(
                "too_large", f"The body has more than {most} bytes, the most that is taken (UNSQUEEZE_UPLOAD_GB)."
            )


def _check(value: Any, path: str, depth: int) -> None:
    if depth > DEEPEST:
        raise Refused("malformed", f"The body is nested more than {DEEPEST} levels deep.")
    if isinstance(value, str):
        if not is_storable(value):
            raise Refused("malformed", f"The text at {path or 'the top'} holds a NUL or half a surrogate pair.")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise Refused("malformed", f"The number at {path or 'the top'} is too large for a 64-bit float.")
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            _check(name, path, depth)
            _check(inner, f"{path}.{name}" if path else name, depth + 1)
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            _check(inner, f"{path}.{position}" if path else str(position), depth + 1)


def is_storable(text: str) -> bool:
    """Whether a database column takes the text."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


class AnyAccept(DefaultContentNegotiation):
    """Each operation answers in its one format, whatever the header Accept asks for."""

    def select_renderer(self, request: Any, renderers: Any, format_suffix: Any = None) -> Any:
        return renderers[0], renderers[0].media_type
