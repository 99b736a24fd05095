"""The run's pages and what their buttons do."""

from bisect import bisect_right
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import NoReverseMatch, reverse
from django.views.decorators.http import require_POST, require_safe

from webapp.checkpoints.lineage import lineage_of_run
from webapp.checkpoints.selectors import base_of, checkpoint_in, checkpoints_of, resume_points
from webapp.datasets.selectors import version_of
from webapp.evals import curves
from webapp.evals.selectors import evaluations_of, first_on, names_of, set_differences, sets_of
from webapp.evals.verdicts import verdict_of
from webapp.launch.services import InvalidConfig, cancel_run, config_text, resume_run, why_unreadable
from webapp.methods.selectors import derived, describe, described, method_titles
from webapp.metrics.axes import AXES
from webapp.metrics.selectors import series_of
from webapp.projects.views_base import ProjectRequest, project_view
from webapp.runpage import squeezing as squeezed
from webapp.runpage.axes import USUAL, axis_of
from webapp.runpage.data import iteration_of
from webapp.runpage.drawn import drawn_iterations
from webapp.runpage.layout import sections_of
from webapp.runpage.rollouts import FILTERS, browse
from webapp.runpage.tree import tree_of
from webapp.runs.models import Run
from webapp.runs.selectors import attempts_of, event_keys, log_tail, run_in, transitions_of
from webapp.runs.services import set_auto_resume
from webapp.runs.states import BadTransition
from webapp.teams.permissions import Capability

LOG_LINES = 200
TABS = (
    ("overview", "Overview"),
    ("squeezing", "Squeezing"),
    ("rollouts", "Rollouts"),
    ("evaluations", "Evaluations"),
    ("config", "Config & lineage"),
)
VERDICT_TONES = {"squeezing": "bad", "not squeezing": "good", "not resolved": "warn", "pending": ""}


@require_safe
@project_view()
def overview(request: ProjectRequest, run: str) -> HttpResponse:
    found = run_in(request.project, run)
    keys = _keys(found)
    return render(
        request,
        "runs/overview.html",
        {
            **_frame(found, "overview"),
            **_charts(request, found, keys),
            **_verdict(found),
            "set_warnings": _set_warnings(found),
            "lines": log_tail(found, lines=LOG_LINES),
            "definitions": [(key, metric) for key, metric in described(keys) if metric.help],
            "undefined": sum(not metric.help for _key, metric in described(keys)),
        },
    )


@require_safe
@project_view()
def part(request: ProjectRequest, run: str, part: str) -> HttpResponse:
    """A piece of the overview again, when something changed that scripts do not redraw, or a section that is unfolded."""
    found = run_in(request.project, run)
    if part == "head":
        return render(request, "runs/_head.html", _frame(found, request.GET.get("tab", "overview")))
    if part == "verdict":
        return render(request, "runs/_verdict.html", {"run": found, **_verdict(found)})
    if part == "charts":
        return render(request, "runs/_charts.html", {"run": found, **_charts(request, found, _keys(found))})
    charts = _charts(request, found, _keys(found))
    section = next((one for one in charts["sections"] if one.name == part), None)
    if section is None:
        raise Http404
    return render(request, "runs/_section.html", {"run": found, "section": section, **charts})


@require_safe
@project_view()
def rollouts(request: ProjectRequest, run: str) -> HttpResponse:
    found = run_in(request.project, run)
    query = request.GET
    browser = browse(
        found, iteration=query.get("iteration", ""), prompt=query.get("prompt", ""), only=query.get("only", "")
    )
    filters = [(name, label) for name, (label, _choose) in FILTERS.items()]
    return render(request, "runs/rollouts.html", {**_frame(found, "rollouts"), "browser": browser, "filters": filters})


@require_safe
@project_view()
def evaluations(request: ProjectRequest, run: str) -> HttpResponse:
    found = run_in(request.project, run)
    stored = evaluations_of(found)
    sources = request.project.runs.in_bulk({one.source_run for one in stored if one.source_run})
    rows = [
        {
            "evaluation": evaluation,
            "source": sources.get(evaluation.source_run),
            "problems": len(evaluation.counts["uid"]),
            "first": curves.pass_at(evaluation, 1),
            "last": curves.pass_at(evaluation, evaluation.samples),
        }
        for evaluation in reversed(stored)
    ]
    return render(
        request,
        "runs/evaluations.html",
        {**_frame(found, "evaluations"), "rows": rows, "set_warnings": _set_warnings(found)},
    )


@require_safe
@project_view()
def squeezing(request: ProjectRequest, run: str) -> HttpResponse:
    found = run_in(request.project, run)
    query = request.GET
    view = squeezed.view_of(
        found,
        problem=query.get("problem", ""),
        name=query.get("name", ""),
        first=query.get("from", ""),
        last=query.get("to", ""),
    )
    return render(request, "runs/squeezing.html", {**_frame(found, "squeezing"), **_verdict(found), "view": view})


@require_safe
@project_view()
def config(request: ProjectRequest, run: str) -> HttpResponse:
    found = run_in(request.project, run)
    return render(
        request,
        "runs/config.html",
        {
            **_frame(found, "config"),
            "nodes": tree_of(found.config),
            "unreadable": why_unreadable(found),
            "attempts": attempts_of(found),
            "transitions": transitions_of(found),
            "checkpoints": checkpoints_of(found),
            "lineage": lineage_of_run(found),
        },
    )


@require_safe
@project_view()
def config_file(request: ProjectRequest, run: str) -> HttpResponse:
    """The resolved configuration, as the trainer takes it."""
    found = run_in(request.project, run)
    response = HttpResponse(config_text(found), content_type="application/json")
    response.headers["Content-Disposition"] = f'attachment; filename="{found.pk}.json"'
    return response


@require_POST
@project_view(Capability.LAUNCH)
def stop(request: ProjectRequest, run: str) -> HttpResponse:
    found = run_in(request.project, run)
    try:
        stopped = cancel_run(found, request.user)
    except BadTransition:
        messages.warning(request, f"{found.name} is over already ({found.get_state_display().lower()}).")
    else:
        text = "was cancelled before it started" if stopped.is_over else "saves its state and then stops"
        messages.success(request, f"{found.name} {text}.")
    return redirect("runpage:overview", *found.url_args)


@require_POST
@project_view(Capability.LAUNCH)
def resume(request: ProjectRequest, run: str) -> HttpResponse:
    """From the newest whole checkpoint, or from the one that is named."""
    found = run_in(request.project, run)
    chosen = request.POST.get("checkpoint", "")
    source = checkpoint_in(request.project, int(chosen[:18])) if chosen.isascii() and chosen.isdigit() else None
    try:
        attempt = resume_run(found, request.user, checkpoint=source)
    except ValidationError as error:
        messages.warning(request, " ".join(error.messages))
    except BadTransition:
        messages.warning(request, f"{found.name} cannot be resumed: it is {found.get_state_display().lower()}.")
    except InvalidConfig as error:
        messages.error(request, f"{found.name} cannot be resumed: {error}.")
    else:
        messages.success(request, f"{found.name} is in the queue again, as attempt {attempt.number}.")
    return redirect("runpage:overview", *found.url_args)


@require_POST
@project_view(Capability.LAUNCH)
def auto_resume(request: ProjectRequest, run: str) -> HttpResponse:
    """Switches automatic resumes of the run off (`limit` 0), or back to the installation's setting (no `limit`)."""
    found = run_in(request.project, run)
    off = request.POST.get("limit") == "0"
    set_auto_resume(run=found, limit=0 if off else None)
    text = "is not resumed automatically any more" if off else "is resumed automatically when something outside ends it"
    messages.success(request, f"{found.name} {text}.")
    return redirect("runpage:config", *found.url_args)


def _frame(run: Run, tab: str) -> dict[str, Any]:
    """What the heading and the tabs of every page of a run show."""
    try:
        copy = f"{reverse('launch:new', args=run.project.url_args)}?{urlencode({'from': run.pk})}"
    except NoReverseMatch:
        copy = ""
    return {
        "run": run,
        "tab": tab,
        "tabs": [(name, label, reverse(f"runpage:{name}", args=run.url_args)) for name, label in TABS],
        "method": " + ".join(method_titles(run.methods)) or run.method_label,
        "derived": derived(run.methods),
        "base": base_of(run),
        "dataset": version_of(run),
        "copy_url": copy,
        "points": resume_points(run) if run.can_resume else [],
    }


def _keys(run: Run) -> list[str]:
    return list(series_of(run).values_list("key", flat=True))


def _charts(request: HttpRequest, run: Run, keys: list[str]) -> dict[str, Any]:
    axis = axis_of(request.GET.get("x", ""))
    other = [(name, title) for name, (title, _unit) in AXES.items() if name not in USUAL]
    return {
        **_figures(request, run, axis),
        "sections": sections_of(run, keys, evaluated=bool(names_of(run))),
        "base_url": reverse("runpage:overview", args=run.url_args),
        "axis": axis,
        "axes": [(name, AXES[name][0]) for name in USUAL],
        "more_axes": other,
        "other_axis": dict(other).get(axis, ""),
    }


def _figures(request: HttpRequest, run: Run, axis: str) -> dict[str, Any]:
    """What the trainer drew, at the iteration `?at=` (None: the newest), histograms over time with `?over=1`."""
    keys = event_keys(run)
    if not keys:
        return {"figures": []}
    at, over = iteration_of(request.GET.get("at", "")), request.GET.get("over") == "1"
    iterations = drawn_iterations(run)
    figures = []
    for kind, key in sorted(((kind, key) for kind, found in keys.items() for key in found), key=lambda pair: pair[1]):
        query = {"kind": kind, "key": key}
        if at is not None:
            query["at"] = str(at)
        if kind == "histogram":
            query |= {"x": axis, **({"over": "1"} if over else {})}
        metric = describe(key)
        figures.append(
            {"kind": kind, "key": key, "title": metric.title, "help": metric.help, "query": urlencode(query)}
        )
    place = len(iterations) - 1 if at is None else max(0, bisect_right(iterations, at) - 1)
    return {
        "figures": figures,
        "figure_iterations": iterations,
        "figure_place": place,
        "histograms": "histogram" in keys,
        "at": at,
        "over": over,
    }


def _set_warnings(run: Run) -> list[dict[str, Any]]:
    """Evaluations of one name that are not comparable with each other, because their sets differ."""
    return [
        {
            "name": name,
            "sets": len(sets),
            "differs": set_differences(sets[-2], sets[-1]),
            "since": first_on(run, sets[-1]),
        }
        for name, sets in sets_of(run).items()
    ]


def _verdict(run: Run) -> dict[str, Any]:
    verdict = verdict_of(run)
    return {"verdict": verdict, "verdict_tone": VERDICT_TONES[verdict.kind]}
