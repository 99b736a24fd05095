"""The compare page and the data of its charts."""

from django.http import HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from webapp.compare.differences import crossing_rows, difference_rows, effective_rows
from webapp.compare.figures import USUAL, keys_in, metric_spec, passk_spec
from webapp.compare.query import TABLE_KS, Query
from webapp.compare.selectors import ONE_SEED, colours, compare, config_differences, offered
from webapp.compare.tables import chance_values, markdown, table_ks, with_members
from webapp.metrics.axes import AXES
from webapp.metrics.selectors import DEFAULT_POINTS
from webapp.projects.views_base import ProjectRequest, project_view


@require_safe
@project_view()
def index(request: ProjectRequest) -> HttpResponse:
    """Everything that the address asks for; only the picker when it names no run."""
    query = Query.of(request.GET)
    found = compare(request.project, query)
    reference = found.reference
    differences = difference_rows(found, reference) if reference is not None else []
    ks = table_ks(found)
    chance = chance_values(found, ks)
    keys = keys_in(found.runs) if found.runs else []
    known = {key for key, _ in keys}
    shown = [key for key in query.metrics if key in known] or [key for key in USUAL if key in known]
    config_runs, configs = config_differences(found.runs, by=found.by)
    args = request.project.url_args
    return render(
        request,
        "compare/index.html",
        {
            "query": query,
            "comparison": found,
            "offered": offered(request.project, query),
            "slots": colours(found.runs, query)[1],
            "reference": reference,
            "differences": differences,
            "difference_ks": TABLE_KS,
            "crossings": crossing_rows(found, reference),
            "effective": effective_rows(found),
            "ks": ks,
            "table": [(line, inner, [(k, line.at(k)) for k in ks]) for line, inner in with_members(found)],
            "chance": list(zip(ks, chance, strict=True)) if chance is not None else [],
            "one_seed": ONE_SEED,
            "config_runs": config_runs,
            "configs": configs,
            "markdown": markdown(found, differences, reference) if found.lines else "",
            "metric_keys": keys,
            "metric_frames": [
                (dict(keys)[key], f"{reverse('compare:metric', args=args)}?{query.encoded(metrics='', key=key)}")
                for key in shown
            ],
            "shown_metrics": shown,
            "axes": [(name, AXES[name][0]) for name in AXES],
            "passk_url": f"{reverse('compare:passk', args=args)}?{query.encoded(metrics='', x='')}",
            "plain_url": reverse("compare:index", args=args),
            "mix_query": query.encoded(mix="" if query.mix else "1"),
            "set_queries": [(choice, query.encoded(set=choice.set.uid, mix="")) for choice in found.sets],
        },
    )


@require_safe
@project_view()
def passk(request: ProjectRequest) -> JsonResponse:
    """The pass@k chart."""
    return JsonResponse(passk_spec(compare(request.project, Query.of(request.GET))))


@require_safe
@project_view()
def metric(request: ProjectRequest) -> JsonResponse:
    """The chart of `?key=`."""
    query = Query.of(request.GET)
    asked = request.GET.get("max_points", "")
    points = (
        min(max(int(asked), 50), 5000) if asked.isascii() and asked.isdigit() and len(asked) < 6 else DEFAULT_POINTS
    )
    key = request.GET.get("key", "")[:160]
    return JsonResponse(metric_spec(request.project, query, key, max_points=points))
