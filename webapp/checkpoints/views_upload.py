"""Uploading a model in the browser: `static/js/upload.js` announces the files and sends pieces.

The server takes the hashes when everything is here: a browser cannot hash a large file without reading it into memory.
"""

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from webapp.checkpoints import uploading
from webapp.checkpoints.layout import SUFFIXES
from webapp.checkpoints.models import Upload
from webapp.core import bodies
from webapp.projects.views_base import ProjectRequest, project_view
from webapp.runs.pieces import WrongOffset
from webapp.teams.permissions import Capability


@require_safe
@project_view(Capability.EDIT)
def page(request: ProjectRequest) -> HttpResponse:
    """The form, and what this person has begun and not finished."""
    begun = [(one, sum(uploading.offsets(one).values())) for one in uploading.open_of(request.project, request.user)]
    context = {"begun": begun, "piece": bodies.PIECE, "kinds": ",".join(SUFFIXES), "kept_days": uploading.KEPT_FOR.days}
    return render(request, "checkpoints/upload.html", context)


@require_POST
@project_view(Capability.EDIT)
def begin(request: ProjectRequest) -> JsonResponse:
    """JSON {name, files: {name: {size}}} → the upload, new or gone on with: {piece, complete, offsets}."""
    try:
        name, files = bodies.announcement(request)
        upload = uploading.start_or_go_on(project=request.project, user=request.user, name=name, files=files)
    except (ValidationError, ValueError, RecursionError) as error:
        return bodies.refused(error)
    at = f"{request.path}{upload.pk}"
    return JsonResponse(
        {"piece": f"{at}/piece", "complete": f"{at}/complete", "offsets": uploading.offsets(upload)}, status=201
    )


@require_POST
@project_view(Capability.EDIT)
def piece(request: ProjectRequest, upload: str) -> JsonResponse:
    """The body is written at `offset` of the file `name` (both in the query) → {offset}; 409 with the right one."""
    found = _mine(request, upload)
    try:
        offset, data = bodies.piece(request)
        end = uploading.append(upload=found, name=request.GET.get("name", ""), offset=offset, data=data)
    except WrongOffset as wrong:
        return JsonResponse({"offset": wrong.offset}, status=409)
    except ValidationError as error:
        return bodies.refused(error)
    return JsonResponse({"offset": end})


@require_POST
@project_view(Capability.EDIT)
def finish(request: ProjectRequest, upload: str) -> JsonResponse:
    """Checks everything → {url} of the checkpoint."""
    try:
        made = uploading.complete(_mine(request, upload))
    except ValidationError as error:
        return bodies.refused(error)
    return JsonResponse({"url": made.get_absolute_url()})


@require_POST
@project_view(Capability.EDIT)
def discard(request: ProjectRequest, upload: str) -> HttpResponse:
    """Gives one up that is not complete."""
    found = get_object_or_404(uploading.open_of(request.project, request.user), pk=upload)
    uploading.discard(found)
    messages.success(request, f"The upload of {found.name} was discarded.")
    return redirect("checkpoints:upload", *request.project.url_args)


def _mine(request: ProjectRequest, upload: str) -> Upload:
    return get_object_or_404(Upload, pk=upload, project=request.project, created_by=request.user)
