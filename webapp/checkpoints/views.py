"""Pages of checkpoints: the list, one of them, its files, and what a project keeps."""

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from webapp.checkpoints import downloads, retention, services
from webapp.checkpoints.forms import RetentionForm
from webapp.checkpoints.lineage import lineage_of_checkpoint
from webapp.checkpoints.manifests import Damaged, read_manifest
from webapp.checkpoints.models import Checkpoint
from webapp.checkpoints.retention import Rule
from webapp.checkpoints.selectors import all_in, checkpoint_in
from webapp.core.counts import counted
from webapp.core.pagination import page_of
from webapp.projects.views_base import ProjectRequest, project_view
from webapp.teams.permissions import Capability


@require_safe
@project_view()
def index(request: ProjectRequest) -> HttpResponse:
    """Every checkpoint of the project that still counts, newest first."""
    page = page_of(all_in(request.project), request)
    return render(request, "checkpoints/index.html", {"page": page})


@require_safe
@project_view()
def detail(request: ProjectRequest, checkpoint: int) -> HttpResponse:
    found = checkpoint_in(request.project, checkpoint)
    files, problem = [], ""
    if found.available:
        try:
            files = read_manifest(found.uri)
        except FileNotFoundError:
            problem = "It is from before manifests: its files are not listed, and cannot be verified."
        except (Damaged, OSError) as error:
            problem = str(error)
    context = {
        "checkpoint": found,
        "files": files,
        "problem": problem,
        "needed": retention.why_needed(found) if found.available else [],
        "lineage": lineage_of_checkpoint(found),
    }
    return render(request, "checkpoints/detail.html", context)


@require_safe
@project_view()
def download(request: ProjectRequest, checkpoint: int) -> HttpResponseBase:
    """Everything as one tar."""
    return downloads.tar_response(request, _readable(request, checkpoint))


@require_safe
@project_view()
def file(request: ProjectRequest, checkpoint: int, name: str) -> HttpResponseBase:
    """One file, whole or a range of it."""
    found = _readable(request, checkpoint)
    entry = downloads.entry_in(found, name)
    if entry is None:
        raise Http404
    return downloads.file_response(request, found.uri, entry)


def _readable(request: ProjectRequest, checkpoint: int) -> Checkpoint:
    """The checkpoint, with files and a manifest; Http404 otherwise."""
    found = checkpoint_in(request.project, checkpoint)
    if not found.available:
        raise Http404
    try:
        read_manifest(found.uri)
    except (FileNotFoundError, Damaged) as error:
        raise Http404 from error
    return found


@require_POST
@project_view(Capability.EDIT)
def verify(request: ProjectRequest, checkpoint: int) -> HttpResponse:
    """Reads every file and compares it with the manifest."""
    found = checkpoint_in(request.project, checkpoint)
    if not found.available:
        messages.warning(request, f"{found.name} has no files any more.")
    elif found.size_bytes > services.LARGEST_VERIFIED:
        messages.warning(request, f"It is too large to wait for; run: python manage.py files --verify {found.pk}")
    elif (checked := services.verify_checkpoint(found)).damage:
        messages.error(request, f"{found.name} is damaged: {checked.damage}")
    else:
        messages.success(request, f"Every file of {found.name} is as it was saved.")
    return redirect(found)


@require_POST
@project_view(Capability.EDIT)
def pin(request: ProjectRequest, checkpoint: int) -> HttpResponse:
    found = checkpoint_in(request.project, checkpoint)
    try:
        services.set_pinned(checkpoint=found, pinned=request.POST.get("pinned") == "1")
    except ValidationError as error:
        messages.warning(request, " ".join(error.messages))
    return redirect(found)


@require_POST
@project_view(Capability.EDIT)
def delete(request: ProjectRequest, checkpoint: int) -> HttpResponse:
    """Removes the files; the row stays for lineage."""
    found = checkpoint_in(request.project, checkpoint)
    try:
        retention.delete(found)
    except ValidationError as error:
        messages.warning(request, " ".join(error.messages))
    else:
        messages.success(request, f"The files of {found.name} were deleted. Its row stays for lineage.")
    return redirect(found)


@require_http_methods(["GET", "HEAD", "POST"])
@project_view(Capability.MANAGE)
def retention_rule(request: ProjectRequest) -> HttpResponse:
    """GET: the rule (from the query where given) and what it would remove. POST: saves it, and applies it once to what
    the preview showed, `goes`."""
    saved = retention.project_rule(request.project)
    given = request.POST if request.method == "POST" else request.GET
    form = RetentionForm(given or None, instance=saved)
    valid = form.is_valid() if given else True
    values = form.cleaned_data if given and valid else {}
    rule = Rule(
        keep=values.get("keep", saved.keep),
        keep_best=values.get("keep_best", saved.keep_best),
        metric=values.get("best_metric", saved.best_metric),
    )
    if request.method == "POST" and valid:
        retention.set_rule(
            project=request.project, keep=rule.keep, keep_best=rule.keep_best, best_metric=rule.metric,
            automatic=values["automatic"],
        )  # fmt: skip
        seen = {int(one) for one in request.POST.get("goes", "").split(",") if one.isascii() and one.isdigit()}
        gone = retention.apply_to_project(request.project, rule, only=seen)
        messages.success(request, f"The files of {counted(len(gone), 'checkpoint')} were removed.")
        if len(gone) < len(seen):
            left = counted(len(seen) - len(gone), "other was", "others were")
            messages.warning(request, f"{left} left alone: gone already, or needed by now.")
        return redirect("checkpoints:retention", *request.project.url_args)
    # A rule that is none has no preview.
    verdicts = retention.plan_for_project(request.project, rule) if valid else None
    goes = [verdict.checkpoint for verdict in verdicts or () if verdict.goes]
    context = {
        "form": form,
        "verdicts": verdicts,
        "goes": len(goes),
        "ids": ",".join(str(one.pk) for one in goes),
        "bytes": sum(one.size_bytes for one in goes),
    }
    return render(request, "checkpoints/retention.html", context)
