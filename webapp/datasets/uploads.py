"""Receiving large files: the limit is held before the body is read, and nothing larger than a chunk is kept in memory."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.conf import settings
from django.core.files.uploadhandler import TemporaryFileUploadHandler
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_protect

from webapp.projects.views_base import ProjectRequest

SLACK = 1 << 20
"""What a form has besides its file."""


def receives_file(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A view below `project_view` whose POST brings a file: it goes to disk as it comes, and one that is too large is
    refused with 413 before it is read. The form's token is checked after that, because it stands in the body."""
    checked = csrf_protect(view)

    @wraps(view)
    def receive(request: ProjectRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.method == "POST":
            length = int(request.META.get("CONTENT_LENGTH") or 0)
            if length > settings.UPLOAD_LIMIT_BYTES + SLACK:
                context = {
                    "status": 413,
                    "title": "This file is too large",
                    "text": f"It has {length / 1e9:.1f} GB; at most {settings.UPLOAD_LIMIT_BYTES / 1e9:.0f} GB can be uploaded.",
                    "advice": "UNSQUEEZE_UPLOAD_GB is the setting; on the server, manage.py import_dataset takes any size.",
                    "link": (request.get_full_path(), "Choose another file"),
                }
                return render(request, "core/error.html", context, status=413)
            request.upload_handlers = [TemporaryFileUploadHandler(request)]
        return checked(request, *args, **kwargs)

    return receive
