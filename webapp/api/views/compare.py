"""Comparisons, by the functions of the compare page."""

from typing import Any

from rest_framework.request import Request

from webapp.api.base import InProject, operation
from webapp.api.serializers.compare import (
    ComparedMetricSerializer,
    CompareMetricQuery,
    CompareQuery,
    ComparisonSerializer,
)
from webapp.compare.differences import Difference, crossing_rows, difference_rows
from webapp.compare.query import Query
from webapp.compare.selectors import Line, Value, compare, selected
from webapp.metrics.selectors import load_series


class CompareView(InProject):
    @operation(
        "compareRuns",
        "pass@k of several runs over k, differences and crossings",
        tag="Compare",
        query=CompareQuery,
        answer=ComparisonSerializer,
    )
    def get(self, request: Request, query: Any) -> Any:
        found = compare(
            self.project,
            Query(
                runs=tuple(dict.fromkeys(query["run"])),
                evaluation=query.get("evaluation", ""),
                at=query["at"],
                by=query.get("by", ""),
                ref=query.get("ref", ""),
                set=query.get("set", ""),
                mix=query["mix"],
            ),
        )
        reference = found.reference
        return {
            "evaluation": found.evaluation,
            "by": found.by,
            "reference": reference.key if reference is not None else None,
            "one_seed": found.one_seed,
            "unknown_runs": found.unknown,
            "missing": [run.pk for run in found.missing],
            "lines": [_line(line) for line in found.all_lines],
            "sets": [
                {
                    "set": choice.set.uid,
                    "label": choice.label,
                    "drawn": choice.drawn,
                    "runs": [run.pk for run in choice.runs],
                    "differs": choice.differs,
                }
                for choice in found.sets
            ],
            "differences": [
                {
                    "line": row.line.key,
                    "pairs_of_seeds": row.seeds,
                    "problems": row.problems,
                    "values": [_difference(cell) for cell in row.cells],
                }
                for row in (difference_rows(found, reference) if reference is not None else ())
            ],
            "crossings": [
                {"a": row.a.key, "b": row.b.key, "resolved": row.resolved, "sentence": row.sentence}
                for row in crossing_rows(found, reference)
            ],
        }


class CompareMetricView(InProject):
    @operation(
        "compareMetric",
        "One metric of several runs",
        tag="Compare",
        query=CompareMetricQuery,
        answer=ComparedMetricSerializer,
    )
    def get(self, request: Request, query: Any) -> Any:
        runs = selected(self.project, Query(runs=tuple(dict.fromkeys(query["run"]))))
        asked = {"axis": query["axis"], "max_points": query["max_points"]}
        return {
            "runs": [
                {"run": run.pk, "series": [one.json() for one in load_series(run, [query["key"]], **asked)]}
                for run in runs
            ]
        }


def _line(line: Line) -> dict[str, Any]:
    return {
        "key": line.key,
        "name": line.name,
        "base": line.is_base,
        "runs": [run.pk for run in line.runs],
        "seeds": line.seeds,
        "problems": line.problems,
        "set": line.first.set.uid,
        "points": [_value(k, line.at(k)) for k in line.ks],
    }


def _value(k: int, value: Value) -> dict[str, Any]:
    return {"k": k, "value": value.value, "lo": value.lo, "hi": value.hi, "note": value.note, "reason": value.reason}


def _difference(cell: Difference) -> dict[str, Any]:
    return {**_value(cell.k, cell.value), "p": cell.p, "verdict": cell.verdict}
