"""Security headers, static files and the server's own time, for sync and async requests alike.

A middleware that knows only one of the two would make Django switch threads at each request, which a process full of
open streams cannot afford.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware

BLOCK = 256 * 1024
UNUSED_FEATURES = "camera=(), geolocation=(), microphone=(), payment=(), usb=()"


class _Both:
    """A middleware whose work is one function (request, response, seconds) after the response is made."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self._later(request)
        began = time.perf_counter()
        return self.finish(request, self.get_response(request), time.perf_counter() - began)

    async def _later(self, request: HttpRequest) -> HttpResponseBase:
        began = time.perf_counter()
        response = await self.get_response(request)
        return self.finish(request, response, time.perf_counter() - began)

    def finish(self, request: HttpRequest, response: HttpResponseBase, seconds: float) -> HttpResponseBase:
        raise NotImplementedError


class ServerTimingMiddleware(_Both):
    """Adds `Server-Timing: app;dur=<milliseconds>`, which browsers show beside each request."""

    def finish(self, request: HttpRequest, response: HttpResponseBase, seconds: float) -> HttpResponseBase:
        response.headers["Server-Timing"] = f"app;dur={seconds * 1000:.1f}"
        return response


class SecurityHeadersMiddleware(_Both):
    """Adds the content security policy of the settings, and switches off browser features that no page uses."""

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        super().__init__(get_response)
        self.policy = "; ".join(f"{name} {sources}" for name, sources in settings.CONTENT_SECURITY_POLICY.items())

    def finish(self, request: HttpRequest, response: HttpResponseBase, seconds: float) -> HttpResponseBase:
        response.headers.setdefault("Content-Security-Policy", self.policy)
        response.headers.setdefault("Permissions-Policy", UNUSED_FEATURES)
        return response


class StaticFilesMiddleware(WhiteNoiseMiddleware):
    """WhiteNoise for async requests too: files are read in blocks off the event loop."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        super().__init__(get_response)
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        return self._later(request) if self.is_async else super().__call__(request)

    async def _later(self, request: HttpRequest) -> HttpResponseBase:
        if not request.path_info.startswith(self.static_prefix):
            return await self.get_response(request)
        if self.autorefresh:
            file = await sync_to_async(self.find_file)(request.path_info)
        else:
            file = self.files.get(request.path_info)
        if file is None:
            return await self.get_response(request)
        found = await sync_to_async(file.get_response)(request.method, request.META)
        response: HttpResponseBase
        if found.file is None:
            response = HttpResponse(status=int(found.status))
        else:
            response = StreamingHttpResponse(_blocks(found.file), status=int(found.status))
        del response.headers["Content-Type"]
        for name, value in found.headers:
            response.headers[name] = value
        return response


async def _blocks(file: Any) -> AsyncIterator[bytes]:
    """The file's content in blocks; closes the file."""
    try:
        while block := await sync_to_async(file.read)(BLOCK):
            yield block
    finally:
        file.close()
