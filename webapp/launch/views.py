"""Launching from the browser: the form, its fragments, the document as a file, and a document as a form."""

import json
import sys
from typing import Any

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from trainer.contract.config import KINDS, Problem
from webapp.checkpoints.selectors import checkpoint_in
from webapp.datasets.selectors import version_in
from webapp.launch.about import about_copy_of
from webapp.launch.forms import LaunchForm, current_form
from webapp.launch.preview import costs, differences, warnings
from webapp.launch.selectors import served_queues
from webapp.launch.services import launch_run
from webapp.projects.views_base import ProjectRequest, project_view
from webapp.runs.models import Run
from webapp.runs.selectors import run_in
from webapp.teams.permissions import Capability

LARGEST_DOCUMENT = 1_000_000
TOO_LARGE = "The file is larger than 1 MB; a configuration is not."


@require_http_methods(["GET", "HEAD", "POST"])
@project_view(Capability.LAUNCH)
def new(request: ProjectRequest) -> HttpResponse:
    """GET: the form, with defaults, `?from=` a run (`&kind=` another kind), `?base=` a checkpoint, `?dataset=` a
    version, `?method=`. POST: launches
    what is typed.
    """
    if request.method != "POST":
        return _page(request, _start(request))
    form = LaunchForm.from_post(request.project, request.POST)
    if form.config is None or not form.about.is_valid():
        return _page(request, form, refused=True)
    about = form.about.cleaned_data
    same = Run.objects.filter(pk=about["run"], project=request.project).first()
    if same is not None and same.config == form.config:
        messages.info(request, "This form has launched this run already. Duplicate it to launch the same again.")
        return redirect(same)
    parent = Run.objects.filter(pk=about["parent"], project=request.project).first() if about["parent"] else None
    try:
        run = launch_run(
            request.project,
            request.user,
            form.config,
            name=about["name"],
            parent=parent,
            tags=form.about.tag_list,
            notes=about["notes"],
            queue=about["queue"],
            auto_resume=about["auto_resume"],
            run_id=None if Run.objects.filter(pk=about["run"]).exists() else about["run"],
        )
    except ValidationError as error:
        again = Run.objects.filter(pk=about["run"], project=request.project).first()
        if again is not None:
            return redirect(again)
        form.add_problems([Problem(name, " ".join(texts)) for name, texts in error.message_dict.items()])
        return _page(request, form, refused=True)
    messages.success(request, f"{run.name} is in the queue.")
    if run.queue not in served_queues():
        messages.warning(request, f"No live worker serves the queue {run.queue}: the run waits until one does.")
    return redirect(run)


def _start(request: ProjectRequest) -> LaunchForm:
    """The form of a GET. What the address names must be in this project."""
    if source := request.GET.get("from"):
        run = run_in(request.project, source)
        config = current_form(run.config)
        if (kind := request.GET.get("kind", run.kind)) in KINDS and kind != run.kind:
            # The settings that both kinds have, e.g. to evaluate a run's base on the run's own test set.
            config = {name: config[name] for name in KINDS[kind].model_fields if name in config} | {"kind": kind}
        return LaunchForm.from_document(request.project, config, about=about_copy_of(run))
    base = ""
    if (wanted := request.GET.get("base", "")).isascii() and wanted.isdigit():
        base = checkpoint_in(request.project, int(wanted[:18])).policy_uri
    version = None
    if (wanted := request.GET.get("dataset", "")).isascii() and wanted.isdigit():
        version = version_in(request.project, int(wanted[:18])).pk
    return LaunchForm.empty(request.project, base=base, methods=tuple(request.GET.getlist("method")), version=version)


@require_POST
@project_view(Capability.LAUNCH)
def parts(request: ProjectRequest) -> HttpResponse:
    """The form's inputs and the preview again, after a choice that decides which inputs there are."""
    form = LaunchForm.from_post(request.project, request.POST)
    return render(request, "launch/_parts.html", _context(form))


@require_POST
@project_view(Capability.LAUNCH)
def preview(request: ProjectRequest) -> HttpResponse:
    """The preview of what is typed."""
    return render(request, "launch/_preview.html", _context(LaunchForm.from_post(request.project, request.POST)))


@require_POST
@project_view(Capability.LAUNCH)
def document(request: ProjectRequest) -> HttpResponse:
    """The resolved configuration as a file; the page with its problems when something is wrong."""
    form = LaunchForm.from_post(request.project, request.POST)
    if form.config is None:
        return _page(request, form, refused=True)
    text = json.dumps(form.config, indent=2, ensure_ascii=False) + "\n"
    response = HttpResponse(text, content_type="application/json")
    response.headers["Content-Disposition"] = 'attachment; filename="config.json"'
    return response


@require_POST
@project_view(Capability.LAUNCH)
def fill(request: ProjectRequest) -> HttpResponse:
    """A JSON document, pasted or as a file, becomes the form. Nothing is launched."""
    file = request.FILES.get("file")
    if file is not None and (file.size or 0) > LARGEST_DOCUMENT:
        return _page(request, _start(request), refused=True, paste_error=TOO_LARGE)
    raw = file.read() if file is not None else request.POST.get("document", "").encode()
    try:
        wanted = json.loads(raw)
    except (ValueError, RecursionError) as error:
        text = raw.decode(errors="replace")
        return _page(request, _start(request), refused=True, paste_error=_unreadable(error), pasted=text)
    form = LaunchForm.from_document(request.project, wanted)
    return _page(request, form)


def _unreadable(error: Exception) -> str:
    if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError, RecursionError)):
        return f"This is no JSON: {error}."
    # What is left is Python's limit on the digits of one number.
    return f"A number has too many digits; at most {sys.get_int_max_str_digits()} can be read."


def _page(request: HttpRequest, form: LaunchForm, *, refused: bool = False, **more: Any) -> HttpResponse:
    return render(request, "launch/new.html", {**_context(form), "refused": refused, **more})


def _context(form: LaunchForm) -> dict[str, Any]:
    config = form.config
    context: dict[str, Any] = {
        "form": form,
        "config": config,
        "left_out": [problem for problem in form.left_out if problem not in form.problems],
        "document_problems": [problem for problem in form.document_problems if problem not in form.problems],
    }
    if config is not None:
        context |= {
            "differences": differences(form, config),
            "costs": costs(config),
            "warnings": warnings(config),
            "config_text": json.dumps(config, indent=2, ensure_ascii=False),
        }
    return context
