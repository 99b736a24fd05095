"""The stream of a run."""

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse
from django.views.decorators.http import require_GET

from webapp.live.stream import stream_of
from webapp.projects.views_base import ProjectRequest, project_view
from webapp.runs.selectors import run_in


@require_GET
@project_view()
async def stream(request: ProjectRequest, run: str) -> StreamingHttpResponse:
    """Everything after `?cursor=` (the page's live number), or after the Last-Event-ID of a browser that comes back."""
    found = await sync_to_async(run_in)(request.project, run)
    cursor = _number(request.headers.get("Last-Event-ID")) or _number(request.GET.get("cursor")) or 0
    return stream_of(found.pk, cursor)


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else 0
