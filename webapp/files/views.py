"""The page of orphans in a project."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from webapp.core.templatetags.figures import grouped
from webapp.files.orphans import GRACE, RUNS_OF_PAGE, find_in, is_due, remove_orphans
from webapp.projects.views_base import ProjectRequest, project_view
from webapp.teams.permissions import Capability


@require_http_methods(["GET", "HEAD", "POST"])
@project_view(Capability.MANAGE)
def orphans(request: ProjectRequest) -> HttpResponse:
    """GET: what is nobody's, and what is missing. POST: removes the chosen ones that are listed here and old enough."""
    try:
        found = find_in(request.project)
    except OSError as error:
        return render(request, "files/orphans.html", {"problem": str(error)}, status=503)
    if request.method == "POST":
        listed = {verdict.unit.uri for verdict in found.orphans}
        chosen = [uri for uri in request.POST.getlist("uri") if uri in listed]
        if not chosen or request.POST.get("sure") != "1":
            messages.warning(request, "Nothing was removed: choose what to remove, and confirm it.")
        else:
            gone, kept = remove_orphans(chosen)
            messages.success(request, f"{grouped(len(gone))} of {grouped(len(chosen))} were removed.")
            for uri, why in list(kept.items())[:3]:
                messages.warning(request, f"{uri} stays: {why}.")
        return redirect("files:orphans", *request.project.url_args)
    rows = [(one, is_due(one)) for one in found.orphans]
    context = {
        "found": found,
        "rows": rows,
        "any_due": any(due for _one, due in rows),
        "hours": int(GRACE.total_seconds() // 3600),
        "runs": RUNS_OF_PAGE,
    }
    return render(request, "files/orphans.html", context)
