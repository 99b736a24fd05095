"""The queue: which runs wait, for what, and which workers there are."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from webapp.launch.selectors import served_queues, stations_for, waiting_for
from webapp.projects.views_base import ProjectRequest, project_view


@require_safe
@project_view()
def queue(request: ProjectRequest) -> HttpResponse:
    """All queues of the installation; runs of other teams are counted and not named."""
    context = {
        "waiting": waiting_for(request.user),
        "stations": stations_for(request.user),
        "served": sorted(served_queues()),
    }
    return render(request, "launch/queue.html", context)
