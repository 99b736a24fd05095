"""The list of runs."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from webapp.core.pagination import page_of
from webapp.projects.views_base import ProjectRequest, project_view
from webapp.runlist.selectors import GROUP_LABELS, Filters, methods_in, rows_of, runs_for
from webapp.runs.models import RunKind
from webapp.runs.states import RunState


@require_safe
@project_view()
def index(request: ProjectRequest) -> HttpResponse:
    """The project's runs, filtered and sorted as the address says; only the table when htmx asks again."""
    filters = Filters.of(request.GET)
    page = page_of(runs_for(request.project, filters), request)
    rows = rows_of(list(page.object_list))
    context = {
        "page": page,
        "rows": rows,
        "filters": filters,
        "moving": any(not row.run.is_over for row in rows),
        "states": [*GROUP_LABELS.items(), *RunState.choices],
        "kinds": RunKind.choices,
        "methods": methods_in(request.project),
        "columns": COLUMNS,
    }
    fragment = request.headers.get("HX-Target") == "run-rows"
    return render(request, "runlist/_rows.html" if fragment else "runlist/index.html", context)


COLUMNS = (
    # (title, key to sort by, numeric)
    ("State", "state", False),
    ("Name", "name", False),
    ("Method", "", False),
    ("Task", "task", False),
    ("Base", "", False),
    ("Progress", "", False),
    ("pass@1, validation", "accuracy", True),
    ("Started", "started", False),
    ("Duration", "duration", True),
)
