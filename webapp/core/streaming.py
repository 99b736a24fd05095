"""Sending what is read piece by piece, without holding it in memory, under WSGI and ASGI."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest


def streamed(request: HttpRequest, blocks: Iterator[bytes]) -> Any:
    """The content of a StreamingHttpResponse. Under ASGI, Django would read an ordinary iterator to its end first."""
    return _later(blocks) if isinstance(request, ASGIRequest) else blocks


async def _later(blocks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The same, read off the event loop."""

    def following() -> bytes:
        return next(blocks, b"")

    while block := await sync_to_async(following)():
        yield block
