"""Pages of studies: the list, one of them, and launching with one click."""

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from trainer.contract.config import InvalidConfig
from trainer.studies import load_study, study_slugs
from webapp.core.counts import counted
from webapp.core.pagination import page_of
from webapp.methods.pages import FIGURES, TONES, context_of
from webapp.projects.views_base import ProjectRequest, project_view
from webapp.studies import selectors, services
from webapp.studies.models import Member
from webapp.teams.permissions import Capability

MOST_COMPARED = 24


@require_safe
@project_view()
def index(request: ProjectRequest) -> HttpResponse:
    """Studies of the project, and those that come with the product."""
    page = page_of(selectors.studies_in(request.project), request)
    verdicts = [selectors.findings_of(study).verdict for study in page.object_list]
    rows = [(study, v, TONES.get(v, "")) for study, v in zip(page.object_list, verdicts, strict=True)]
    offered = [load_study(slug) for slug in study_slugs()]
    return render(request, "studies/index.html", {"page": page, "rows": rows, "offered": offered})


@require_POST
@project_view(Capability.LAUNCH)
def launch(request: ProjectRequest) -> HttpResponse:
    """`study` and `form`: all its runs are queued."""
    slug, form = request.POST.get("study", ""), request.POST.get("form", "")
    if slug not in study_slugs() or form not in ("quick", "full"):
        raise Http404
    try:
        study = services.launch_study(
            request.project, request.user, load_study(slug), "quick" if form == "quick" else "full"
        )
    except (InvalidConfig, ValidationError) as error:
        messages.error(request, f"The study was not launched: {error}")
        return redirect("studies:index", *request.project.url_args)
    messages.success(request, f"{counted(study.members.count(), 'run')} of {study.title} are in the queue.")
    return redirect(study)


@require_safe
@project_view()
def detail(request: ProjectRequest, study: int) -> HttpResponse:
    """Hypothesis and verdict, the grid, the figures."""
    one = selectors.study_in(request.project, study)
    found = selectors.findings_of(one)
    trained = [m.run for m in selectors.members_of(one) if m.part == Member.Part.MEASURE]
    runs = ",".join(run.pk for run in trained[:MOST_COMPARED])
    context = {
        "study": one,
        **context_of(found),
        "tone": TONES.get(found.verdict, ""),
        "grid": selectors.grid(one),
        "compare_url": f"{reverse('compare:index', args=request.project.url_args)}?runs={runs}" if runs else "",
        "left_out": max(0, len(trained) - MOST_COMPARED),
    }
    return render(request, "studies/detail.html", context)


@require_safe
@project_view()
def grid(request: ProjectRequest, study: int) -> HttpResponse:
    """The grid again, while something moves."""
    one = selectors.study_in(request.project, study)
    return render(request, "studies/_grid.html", {"study": one, "grid": selectors.grid(one)})


@require_safe
@project_view()
def figure(request: ProjectRequest, study: int, figure: str) -> JsonResponse:
    """One of the figures, as a chart's spec."""
    one = selectors.study_in(request.project, study)
    if figure not in FIGURES:
        raise Http404
    return JsonResponse(FIGURES[figure](selectors.findings_of(one)))


@require_POST
@project_view(Capability.LAUNCH)
def stop(request: ProjectRequest, study: int) -> HttpResponse:
    """Stops what is not over."""
    one = selectors.study_in(request.project, study)
    stopped = services.stop_study(one, request.user)
    messages.success(request, f"{counted(stopped, 'run')} asked to stop. What was measured stays.")
    return redirect(one)
