"""Comparisons."""

from typing import Any

from rest_framework import serializers

from webapp.api.serializers.common import Strict, TextField
from webapp.api.serializers.figures import FEWEST_POINTS, MOST_POINTS, PointsSerializer
from webapp.compare.query import MOST_RUNS
from webapp.metrics.selectors import AXES, DEFAULT_POINTS


class CompareQuery(Strict):
    """What is held against what; see the compare page."""

    lists = ("run",)

    run = serializers.ListField(
        child=TextField(max_length=12), min_length=1, max_length=MOST_RUNS, help_text="May be repeated."
    )
    evaluation = TextField(max_length=60, required=False, help_text="By default what most runs have.")
    at = serializers.ChoiceField(["last", "start"], default="last")
    by = serializers.ChoiceField(["run", "seeds"], required=False, help_text="By default seeds, where there are some.")
    ref = TextField(max_length=160, required=False, help_text="Key of a line; by default the base.")
    set = TextField(max_length=80, required=False, help_text="Identity of the evaluation set.")
    mix = serializers.BooleanField(default=False, help_text="Several sets together, which are not comparable.")


class CompareMetricQuery(Strict):
    """Which runs, and what of them."""

    lists = ("run",)

    run = serializers.ListField(
        child=TextField(max_length=12), min_length=1, max_length=MOST_RUNS, help_text="May be repeated."
    )
    key = TextField(max_length=160)
    axis = serializers.ChoiceField(list(AXES), default="iteration")
    max_points = serializers.IntegerField(min_value=FEWEST_POINTS, max_value=MOST_POINTS, default=DEFAULT_POINTS)


class RunMetricSerializer(serializers.Serializer):
    """A run's series; none where it has not logged the metric."""

    run = serializers.CharField()
    series = PointsSerializer(many=True)


class ComparedMetricSerializer(serializers.Serializer):
    """The asked runs of the project, in the order asked for."""

    runs = RunMetricSerializer(many=True)


class ValueSerializer(serializers.Serializer):
    """A number with its interval. Null: undefined, `note` or `reason` says why."""

    k = serializers.IntegerField()
    value = serializers.FloatField(allow_null=True)
    lo = serializers.FloatField(allow_null=True)
    hi = serializers.FloatField(allow_null=True)
    note = serializers.CharField(allow_blank=True)
    reason = serializers.CharField(allow_blank=True)


class LineSerializer(serializers.Serializer):
    """A curve: a run, several seeds of one configuration, or the base."""

    key = serializers.CharField()
    name = serializers.CharField()
    base = serializers.BooleanField()
    runs = serializers.ListField(child=serializers.CharField())
    seeds = serializers.IntegerField()
    problems = serializers.IntegerField()
    set = serializers.CharField()
    points = ValueSerializer(many=True)


class DifferenceSerializer(ValueSerializer):
    """pass@k minus the reference's, paired. `p` is adjusted by Holm over all of the answer."""

    p = serializers.FloatField(allow_null=True)
    verdict = serializers.CharField(allow_blank=True, help_text="higher, lower, not resolved; empty: undefined")


class DifferenceRowSerializer(serializers.Serializer):
    """A line against the reference."""

    line = serializers.CharField()
    pairs_of_seeds = serializers.IntegerField()
    problems = serializers.IntegerField()
    values = DifferenceSerializer(many=True)


class CrossingSerializer(serializers.Serializer):
    """Where two curves cross, as a sentence."""

    a = serializers.CharField()
    b = serializers.CharField()
    resolved = serializers.BooleanField()
    sentence = serializers.CharField()


class SetSerializer(serializers.Serializer):
    """An evaluation set among the runs, and what tells it from the drawn one."""

    set = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    drawn = serializers.BooleanField()
    runs = serializers.ListField(child=serializers.CharField())
    differs = serializers.ListField(child=serializers.CharField())


class ComparisonSerializer(serializers.Serializer):
    """The comparison. Runs that are not in the project, or lack the evaluation, are counted or listed, not drawn."""

    evaluation = serializers.CharField()
    by = serializers.CharField()
    reference = serializers.CharField(allow_null=True)
    one_seed = serializers.BooleanField(help_text="Some line rests on one run: a curve, not evidence.")
    unknown_runs = serializers.IntegerField()
    missing = serializers.ListField(child=serializers.CharField())
    lines = LineSerializer(many=True)
    sets = SetSerializer(many=True)
    differences = DifferenceRowSerializer(many=True)
    crossings = CrossingSerializer(many=True)

    def to_representation(self, instance: Any) -> Any:
        return instance
