"""Server-Sent Events of one run."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from django.http import StreamingHttpResponse

from webapp.live.broadcaster import Broadcaster, broadcaster

KEEP_ALIVE_SECONDS = 15.0
# The browser then comes back with its cursor, and is checked again: someone may have left the team.
LONGEST_SECONDS = 600.0
RETRY_MS = 1000


def stream_of(run_id: str, cursor: int) -> StreamingHttpResponse:
    """A response with everything of the run after the cursor. May be made in any thread: the process's broadcaster is
    asked for when the response is sent, in the server's event loop.
    """

    async def messages() -> AsyncIterator[bytes]:
        async with aclosing(events(broadcaster(), run_id, cursor)) as found:
            async for one in found:
                yield one

    response = StreamingHttpResponse(messages(), content_type="text/event-stream")
    response.headers["Cache-Control"] = "no-cache, no-transform"
    response.headers["X-Accel-Buffering"] = "no"
    return response


async def events(
    source: Broadcaster,
    run_id: str,
    cursor: int,
    *,
    keep_alive: float = KEEP_ALIVE_SECONDS,
    longest: float = LONGEST_SECONDS,
) -> AsyncGenerator[bytes]:
    """Deltas as SSE messages `delta` whose id is the cursor, comments that keep the connection, until `longest`."""
    subscriber = source.subscribe(run_id, cursor)
    ends = time.monotonic() + longest
    try:
        yield f"retry: {RETRY_MS}\n\n".encode()
        while (left := ends - time.monotonic()) > 0:
            try:
                found = await asyncio.wait_for(subscriber.queue.get(), min(keep_alive, left))
            except TimeoutError:
                yield b": still here\n\n"
                continue
            if found is None:
                return
            yield message(found)
    finally:
        source.unsubscribe(subscriber)


def message(found: dict[str, Any]) -> bytes:
    """One message. JSON has no raw line breaks, so it is one data line."""
    data = json.dumps(found, separators=(",", ":"), allow_nan=False)
    return f"id: {found['cursor']}\nevent: delta\ndata: {data}\n\n".encode()
