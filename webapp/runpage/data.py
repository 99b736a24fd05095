"""The data of the page's charts: JSON specs, one request a chart, and CSV."""

import csv
import math
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from webapp.metrics.axes import Scale
from webapp.metrics.selectors import DEFAULT_POINTS, load_series, series_of
from webapp.projects.views_base import ProjectRequest, project_view
from webapp.runpage import axes
from webapp.runpage.axes import axis_of
from webapp.runpage.drawn import figure_spec
from webapp.runpage.specs import Spec, named_chart, single_metric
from webapp.runs.models import Run
from webapp.runs.selectors import run_in

FEWEST_POINTS, MOST_POINTS = 50, 5000
ALL_POINTS = 1 << 62
MOST_KEYS = 50  # in one file


@require_safe
@project_view()
def chart(request: ProjectRequest, run: str, chart: str) -> JsonResponse:
    """One of the overview's charts: `?x=` its axis, `?max_points=` how many points a series may have."""
    found = run_in(request.project, run)
    spec = named_chart(found, chart, axis=_axis(request), max_points=_points(request))
    if spec is None:
        raise Http404
    return _answer(found, spec)


@require_safe
@project_view()
def metric(request: ProjectRequest, run: str) -> JsonResponse:
    """The metric `?key=` on its own."""
    found = run_in(request.project, run)
    key = request.GET.get("key", "")
    return _answer(found, single_metric(found, key, axis=_axis(request), max_points=_points(request)))


@require_safe
@project_view()
def figure(request: ProjectRequest, run: str) -> JsonResponse:
    """A histogram, heat map, scatter, table or text: `?kind=`, `?key=`, `?at=` an iteration (the newest up to it). With
    `?over=1` a histogram is drawn over the axis `?x=`.
    """
    found = run_in(request.project, run)
    query = request.GET
    kind, key = query.get("kind", ""), query.get("key", "")
    over = _axis(request) if query.get("over") == "1" else None
    spec = figure_spec(found, kind, key, at=iteration_of(query.get("at", "")), over=over)
    if spec is None:
        raise Http404
    return JsonResponse(spec, json_dumps_params={"allow_nan": False, "separators": (",", ":")})


def iteration_of(text: str) -> int | None:
    """An iteration of a query string, None for anything else."""
    return int(text[:9]) if text.isascii() and text.isdigit() else None


@require_safe
@project_view()
def behind(request: ProjectRequest, run: str) -> JsonResponse:
    """Phases and marks on the axis `?x=`, which all charts over iterations share."""
    found = run_in(request.project, run)
    return JsonResponse(axes.behind(found, Scale(found.pk, _axis(request))))


@require_safe
@project_view()
def metrics_csv(request: ProjectRequest, run: str) -> HttpResponse:
    """All points of the metrics `?key=` (several times; none: all metrics), a line an iteration, on the axis `?x=`."""
    found = run_in(request.project, run)
    axis = _axis(request)
    known = list(series_of(found).order_by("key").values_list("key", flat=True))
    keys = request.GET.getlist("key")[:MOST_KEYS] or known
    if unknown := [key for key in keys if key not in known]:
        text = f"The run has no metric {unknown[0]!r}. Without ?key= the file has all {len(known)} metrics.\n"
        return HttpResponse(text, status=404, content_type="text/plain; charset=utf-8")
    return csv_of(found, keys, axis)


def csv_of(run: Run, keys: list[str], axis: str) -> HttpResponse:
    """A file with a line for each iteration and a column for each of the metrics."""
    response = HttpResponse("".join(_lines(run, keys, axis)), content_type="text/csv; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="{run.pk}.csv"'
    return response


class _Line:
    """A file that hands each written line back."""

    def write(self, text: str) -> str:
        return text


def _lines(run: Run, keys: list[str], axis: str) -> Iterator[str]:
    series = load_series(run, keys, axis=axis, max_points=ALL_POINTS)
    rows: dict[int, dict[str, Any]] = {}
    for one in series:
        flags = dict(one.nonfinite)
        for index, iteration in enumerate(one.iteration):
            row = rows.setdefault(iteration, {"x": one.x[index]})
            row[one.key] = flags.get(index, one.y[index])
    writer = csv.writer(_Line())
    names = [one.key for one in series]
    yield writer.writerow(["iteration", *([axis] if axis != "iteration" else []), *names])
    for iteration in sorted(rows):
        row = rows[iteration]
        yield writer.writerow([iteration, *([row["x"]] if axis != "iteration" else []), *(row.get(n) for n in names)])


def _axis(request: HttpRequest) -> str:
    return axis_of(request.GET.get("x", ""))


def _points(request: HttpRequest) -> int:
    asked = request.GET.get("max_points", "")
    wanted = int(asked[:9]) if asked.isascii() and asked.isdigit() else DEFAULT_POINTS
    return max(FEWEST_POINTS, min(MOST_POINTS, wanted))


def _answer(run: Run, spec: Spec) -> JsonResponse:
    keys = [one["key"] for one in spec["series"] if "total" in one]
    if keys:
        query = urlencode([("key", key) for key in keys] + [("x", spec["x"]["axis"])])
        spec["csv"] = f"{reverse('runpage:metrics-csv', args=run.url_args)}?{query}"
    return JsonResponse(_clean(spec), json_dumps_params={"allow_nan": False, "separators": (",", ":")})


def _clean(spec: Spec) -> Spec:
    """Chance lines may be NaN where there are no problems; JSON has no word for it."""
    for one in spec["series"]:
        one["y"] = [None if isinstance(v, float) and not math.isfinite(v) else v for v in one["y"]]
    return spec
