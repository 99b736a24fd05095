"""The way to a project, its home page, and making a new one."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from webapp.core.nav import home_bands
from webapp.projects import services
from webapp.projects.context import LAST_PROJECT, Frame
from webapp.projects.forms import ProjectForm
from webapp.projects.views_base import ProjectRequest, project_view
from webapp.teams.permissions import Capability
from webapp.teams.selectors import team_for


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """To the project seen last, or to the only thing that someone without a team can read."""
    project = Frame(request).project
    if project is not None:
        return redirect(project)
    return render(request, "projects/none.html")


@require_safe
@project_view()
def home(request: ProjectRequest) -> HttpResponse:
    """The bands of the apps that have something to show; without any, the first steps."""
    if request.session.get(LAST_PROJECT) != request.project.pk:
        request.session[LAST_PROJECT] = request.project.pk
    bands: list[dict[str, Any]] = []
    for band in home_bands():
        context = band.context(request.project, request.user)
        if context is not None:
            bands.append({"template": band.template, **context})
    return render(request, "projects/home.html", {"bands": bands})


@require_http_methods(["GET", "HEAD", "POST"])
def new(request: HttpRequest, team: str) -> HttpResponse:
    found, _role = team_for(request.user, team, Capability.MANAGE)
    form = ProjectForm(request.POST if request.method == "POST" else None, team=found)
    if request.method == "POST" and form.is_valid():
        project = services.create_project(team=found, slug=form.cleaned_data["slug"], name=form.cleaned_data["name"])
        messages.success(request, f"The project {project} is ready.")
        return redirect(project)
    return render(request, "projects/new.html", {"form": form, "team": found})
