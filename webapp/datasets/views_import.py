"""From a file to a version: upload, mapping with a preview, progress."""

from typing import Any

from django.contrib import messages
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from webapp.core import bodies
from webapp.datasets import receiving, selectors, services
from webapp.datasets.forms import MappingForm, UploadForm
from webapp.datasets.models import Import, ImportState
from webapp.datasets.tool import ToolError, inspect
from webapp.datasets.uploads import receives_file
from webapp.projects.views_base import ProjectRequest, project_view
from webapp.runs import storage
from webapp.runs.pieces import WrongOffset
from webapp.teams.permissions import Capability

SEEN_SECONDS = 3600


@csrf_exempt  # `receives_file` checks the token once the size is known
@require_http_methods(["GET", "HEAD", "POST"])
@project_view(Capability.EDIT)
@receives_file
def upload(request: ProjectRequest, dataset: int | None = None) -> HttpResponse:
    """A file for a new dataset, or for another version of one."""
    found = selectors.dataset_in(request.project, dataset) if dataset else None
    known_name = found.name if found else ""
    if request.method != "POST":
        return _upload_page(request, UploadForm(dataset_name=known_name), found)
    form = UploadForm(request.POST, request.FILES, dataset_name=known_name)
    if not form.is_valid():
        return _upload_page(request, form, found)
    target = found
    try:
        if target is None:
            target = services.create_dataset(project=request.project, name=form.cleaned_data["name"], user=request.user)
        job = services.add_upload(dataset=target, file=form.cleaned_data["file"], user=request.user)
    except ValidationError as error:
        if target is not None and found is None:
            services.remove_dataset(dataset=target)
        fields = error.message_dict if hasattr(error, "error_dict") else {"file": error.messages}
        for name, texts in fields.items():
            form.add_error(name if name in form.fields else None, texts)
        return _upload_page(request, form, found)
    return redirect(job)


@require_POST
@project_view(Capability.EDIT)
def begin(request: ProjectRequest, dataset: int | None = None) -> JsonResponse:
    """JSON {name, files: {name: {size}}} with one file → the upload, new or gone on with: {piece, complete, offsets}."""
    found = selectors.dataset_in(request.project, dataset) if dataset else None
    try:
        name, files = bodies.announcement(request)
        job = receiving.start_or_go_on(
            project=request.project, user=request.user, name=name, files=files, dataset=found
        )
    except (ValidationError, ValueError, RecursionError) as error:
        return bodies.refused(error)
    addresses = {name: reverse(f"datasets:{name}", args=job.url_args) for name in ("piece", "complete")}
    return JsonResponse({**addresses, "offsets": {next(iter(files)): receiving.offset_of(job)}}, status=201)


@require_POST
@project_view(Capability.EDIT)
def piece(request: ProjectRequest, job: int) -> JsonResponse:
    """The body is written at `offset` (in the query) of the file → {offset}; 409 with the right one."""
    found = _mine(request, job)
    try:
        offset, data = bodies.piece(request)
        end = receiving.append(job=found, offset=offset, data=data)
    except WrongOffset as wrong:
        return JsonResponse({"offset": wrong.offset}, status=409)
    except ValidationError as error:
        return bodies.refused(error)
    return JsonResponse({"offset": end})


@require_POST
@project_view(Capability.EDIT)
def finish(request: ProjectRequest, job: int) -> JsonResponse:
    """Everything has arrived → {url} of the mapping."""
    try:
        return JsonResponse({"url": receiving.complete(_mine(request, job)).get_absolute_url()})
    except ValidationError as error:
        return bodies.refused(error)


def _mine(request: ProjectRequest, job: int) -> Import:
    found = selectors.import_in(request.project, job)
    if found.created_by_id != request.user.pk:
        raise Http404
    return found


def _upload_page(request: ProjectRequest, form: UploadForm, dataset: Any) -> HttpResponse:
    status = 422 if form.is_bound else 200
    context = {"form": form, "dataset": dataset, "piece": bodies.PIECE, "kept_days": receiving.KEPT_FOR.days}
    return render(request, "datasets/upload.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@project_view(Capability.EDIT)
def mapping(request: ProjectRequest, job: int) -> HttpResponse:
    """GET: the recognised (or the last) mapping with the first rows. POST: starts the import."""
    found = selectors.import_in(request.project, job)
    if found.state != ImportState.MAPPING:
        return redirect("datasets:import", *found.url_args)
    if request.method != "POST":
        return render(request, "datasets/mapping.html", _looked(found, found.mapping))
    context = _typed(found, request)
    form = context.get("form")
    if context["problem"] or form is None or not form.is_valid():
        return render(request, "datasets/mapping.html", context)
    services.start_import(job=found, mapping=form.mapping())
    return redirect("datasets:import", *found.url_args)


@require_POST
@project_view(Capability.EDIT)
def preview(request: ProjectRequest, job: int) -> HttpResponse:
    """The first rows under what is typed."""
    return render(request, "datasets/_preview.html", _typed(selectors.import_in(request.project, job), request))


def _looked(job: Import, mapping: Any) -> dict[str, Any]:
    """The page's context for a mapping, or for the recognised one where it is None."""
    try:
        seen = inspect(storage.fetch(job.uri, size=job.size_bytes), job.filename, mapping)
    except (ToolError, OSError) as error:
        return {"job": job, "problem": str(error)}
    return {"job": job, "problem": "", "seen": seen, "form": MappingForm.of(seen["mapping"], choices=seen["choices"])}


def _typed(job: Import, request: ProjectRequest) -> dict[str, Any]:
    """The context for what is typed: what is wrong with a field stands at it, what is wrong with the file in `problem`."""
    # What the file holds does not change with what is typed, so that one look serves all previews.
    key = f"datasets-seen-{job.pk}"
    seen = cache.get(key)
    if seen is None:
        context = _looked(job, None)
        if "seen" not in context:
            return context
        seen = {**context["seen"], "rows": []}
        cache.set(key, seen, SEEN_SECONDS)
    form = MappingForm(request.POST, choices=seen["choices"])
    if not form.is_valid():
        return {"job": job, "problem": "", "seen": seen, "form": form}
    return {"seen": seen, **_looked(job, form.mapping()), "form": form}


@require_safe
@project_view()
def progress(request: ProjectRequest, job: int) -> HttpResponse:
    """How far an import is, and how it ended; `?part=1` only what changes."""
    found = selectors.import_in(request.project, job)
    template = "datasets/_progress.html" if request.GET.get("part") else "datasets/import.html"
    response = render(request, template, {"job": found, "arrived": receiving.offset_of(found)})
    if request.GET.get("part") and found.state == ImportState.FINISHED and found.version:
        response.headers["HX-Redirect"] = found.version.get_absolute_url()
    return response


@require_POST
@project_view(Capability.EDIT)
def again(request: ProjectRequest, job: int) -> HttpResponse:
    """A failed import from its beginning, or with `remap` after a look at its mapping."""
    found = selectors.import_in(request.project, job)
    if "remap" in request.POST:
        return redirect(services.change_mapping(job=found))
    if found.mapping is not None:
        services.start_import(job=found, mapping=found.mapping)
    return redirect("datasets:import", *found.url_args)


@require_POST
@project_view(Capability.EDIT)
def discard(request: ProjectRequest, job: int) -> HttpResponse:
    """Removes an upload that has not become a version."""
    found = selectors.import_in(request.project, job)
    services.discard(job=found)
    messages.success(request, f"{found.filename} is discarded.")
    return redirect("datasets:index", *request.project.url_args)
