"""Numbers of a run: series, evaluations, rollouts."""

from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request

from webapp.api.base import OfRun, operation
from webapp.api.errors import Refused
from webapp.api.serializers.figures import (
    CsvQuery,
    EvaluationDetailSerializer,
    EvaluationSerializer,
    EvaluationsQuery,
    FigureSerializer,
    FiguresQuery,
    GroupDetailSerializer,
    GroupSerializer,
    GroupsQuery,
    IterationsSerializer,
    NameQuery,
    PasskSerializer,
    PointsAnswerSerializer,
    PointsQuery,
    SeriesSerializer,
)
from webapp.evals.models import Evaluation
from webapp.evals.selectors import curve_json, evaluations_of, problem_rows, progress_json, start_of
from webapp.metrics.selectors import load_series, series_of
from webapp.rollouts.selectors import PartMissing, group_in, groups_of, iterations_of, rows_of
from webapp.runpage.data import csv_of
from webapp.runs.selectors import drawn_of

METRICS, EVALUATIONS, ROLLOUTS = "Metrics", "Evaluations", "Rollouts"


class SeriesView(OfRun):
    @operation("listSeries", "The run's metrics with their newest values", tag=METRICS, paged=SeriesSerializer)
    def get(self, request: Request, query: Any) -> Any:
        return series_of(self.run), "key"


class PointsView(OfRun):
    @operation("getPoints", "Points of some metrics", tag=METRICS, query=PointsQuery, answer=PointsAnswerSerializer)
    def get(self, request: Request, query: Any) -> Any:
        found = load_series(
            self.run,
            list(dict.fromkeys(query["key"])),
            axis=query["axis"],
            max_points=query["max_points"],
            begin=query.get("begin"),
            end=query.get("end"),
        )
        return {"series": [one.json() for one in found]}


class CsvView(OfRun):
    @operation(
        "getMetricsCsv",
        "All points of the metrics as a file",
        tag=METRICS,
        query=CsvQuery,
        raw={"text/csv": OpenApiTypes.STR},
        description="A line an iteration, a column a metric; unreduced.",
    )
    def get(self, request: Request, query: Any) -> HttpResponse:
        known = list(series_of(self.run).values_list("key", flat=True))
        keys = query.get("key") or known
        if unknown := [key for key in keys if key not in known]:
            raise Refused("not_found", f"The run has no metric {unknown[0]!r}.")
        return csv_of(self.run, keys, query["axis"])


class FiguresView(OfRun):
    @operation(
        "listFigures",
        "Histograms, heat maps, scatters, tables and texts, by iteration",
        tag=METRICS,
        query=FiguresQuery,
        paged=FigureSerializer,
    )
    def get(self, request: Request, query: Any) -> Any:
        rows = drawn_of(self.run)
        return rows.filter(**{name: query[name] for name in ("kind", "key", "iteration") if name in query}), "iteration"


class EvaluationsView(OfRun):
    @operation(
        "listEvaluations",
        "Evaluations that still count, by iteration",
        tag=EVALUATIONS,
        query=EvaluationsQuery,
        paged=EvaluationSerializer,
    )
    def get(self, request: Request, query: Any) -> Any:
        kept = [evaluation.pk for evaluation in evaluations_of(self.run, query.get("name"))]
        rows = Evaluation.objects.filter(pk__in=kept).prefetch_related("set").defer("answers")
        return rows, "iteration"


class EvaluationView(OfRun):
    @operation(
        "getEvaluation",
        "pass@k with intervals, and (n, c) of each problem",
        tag=EVALUATIONS,
        answer=EvaluationDetailSerializer,
    )
    def get(self, request: Request, evaluation: int) -> Any:
        found = get_object_or_404(self.run.evaluations.filter(retired=False).select_related("set"), pk=evaluation)
        found.curve = curve_json(found)  # type: ignore[attr-defined]
        found.results = problem_rows(found, start_of(self.run, found))  # type: ignore[attr-defined]
        return found


class PasskView(OfRun):
    @operation(
        "getPasskOverIterations",
        "pass@k over the run's iterations",
        tag=EVALUATIONS,
        query=NameQuery,
        answer=PasskSerializer,
    )
    def get(self, request: Request, query: Any) -> Any:
        found = progress_json(self.run, query["name"])
        if found is None:
            raise Http404
        return found


class RolloutsView(OfRun):
    @operation("listRolloutIterations", "Iterations with rollouts", tag=ROLLOUTS, answer=IterationsSerializer)
    def get(self, request: Request) -> Any:
        return {"iterations": iterations_of(self.run)}


class GroupsView(OfRun):
    @operation(
        "listRolloutGroups",
        "Prompts with their rollouts, of an iteration or of all",
        tag=ROLLOUTS,
        query=GroupsQuery,
        paged=GroupSerializer,
    )
    def get(self, request: Request, query: Any) -> Any:
        rows = groups_of(self.run)
        if "iteration" in query:
            rows = rows.filter(iteration=query["iteration"])
        if "prompt" in query:
            rows = rows.filter(uid=query["prompt"])
        return rows, "iteration"


class GroupView(OfRun):
    @operation("getRolloutGroup", "The completions of one prompt", tag=ROLLOUTS, answer=GroupDetailSerializer)
    def get(self, request: Request, group: int) -> Any:
        found = group_in(self.run, group)
        try:
            found.rollouts = rows_of(found)  # type: ignore[attr-defined]
        except PartMissing as error:
            raise Refused("file_missing", str(error)) from error
        return found
