"""Pages of the library."""

from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from webapp.methods import library, pages
from webapp.projects.views_base import ProjectRequest, project_view


@require_safe
@project_view()
def index(request: ProjectRequest) -> HttpResponse:
    """Methods, those that `?q=` finds; the base algorithms below."""
    query = request.GET.get("q", "").strip()[:200]
    context = {
        "query": query,
        "entries": pages.found_by(query),
        "problems": pages.problems(),
        "presets": library.presets(),
    }
    return render(request, "methods/index.html", context)


@require_safe
@project_view()
def method(request: ProjectRequest, slug: str) -> HttpResponse:
    about = pages.about(slug)
    if about is None:
        raise Http404
    return render(request, "methods/method.html", {"about": about, **pages.context_of(about.found)})


@require_safe
@project_view()
def figure(request: ProjectRequest, slug: str, figure: str) -> JsonResponse:
    """A figure of the committed results."""
    found = pages.committed(slug)
    if found is None or figure not in pages.FIGURES:
        raise Http404
    return JsonResponse(pages.FIGURES[figure](found))
