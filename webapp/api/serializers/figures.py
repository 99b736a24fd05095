"""Numbers of a run: series, evaluations with their intervals, rollouts."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from webapp.api.serializers.common import PageQuery, Strict, TextField
from webapp.metrics.models import NonFinite
from webapp.metrics.selectors import AXES, DEFAULT_POINTS
from webapp.runs.selectors import DRAWN

FEWEST_POINTS, MOST_POINTS, MOST_KEYS = 50, 5000, 50
NONFINITE = ["nan", "inf", "-inf"]
LAST_ITERATION = 2**31 - 1
FIGURES = sorted(DRAWN)


@extend_schema_field({"oneOf": [{"type": "string", "enum": NONFINITE}, {"type": "null"}]})
class NonFiniteOrNull(serializers.CharField):
    """What stands instead of a number; null where there is a number."""


class SeriesSerializer(serializers.Serializer):
    """A metric with its newest value; null where it is not finite."""

    key = serializers.CharField()
    title = serializers.CharField()
    unit = serializers.CharField()
    last_iteration = serializers.IntegerField()
    last_value = serializers.FloatField(allow_null=True)
    last_nonfinite = NonFiniteOrNull()

    def to_representation(self, instance: Any) -> Any:
        from webapp.methods.selectors import describe

        metric = describe(instance.key)
        return {
            "key": instance.key,
            "title": metric.title,
            "unit": metric.unit,
            "last_iteration": instance.last_iteration,
            "last_value": instance.last_value,
            "last_nonfinite": NonFinite(instance.last_nonfinite).label or None,
        }


class IterationsQuery(Strict):
    """Which iterations, both ends included."""

    begin = serializers.IntegerField(min_value=0, max_value=LAST_ITERATION, required=False)
    end = serializers.IntegerField(min_value=0, max_value=LAST_ITERATION, required=False)


class PointsQuery(IterationsQuery):
    """Which series, and how much of them."""

    lists = ("key",)

    key = serializers.ListField(
        child=TextField(max_length=160), min_length=1, max_length=MOST_KEYS, help_text="May be repeated."
    )
    axis = serializers.ChoiceField(list(AXES), default="iteration")
    max_points = serializers.IntegerField(min_value=FEWEST_POINTS, max_value=MOST_POINTS, default=DEFAULT_POINTS)


class NonFiniteField(serializers.ListField):
    """[[index, "nan"], …]"""

    child = serializers.ListField(child=serializers.JSONField())


class PointsSerializer(serializers.Serializer):
    """A series on the asked axis. Longer ones are reduced so that the lowest, the highest and every NaN stay."""

    key = serializers.CharField()
    x = serializers.ListField(child=serializers.FloatField())
    y = serializers.ListField(child=serializers.FloatField(allow_null=True))
    iteration = serializers.ListField(child=serializers.IntegerField())
    nonfinite = NonFiniteField(help_text="[index in y, what stands there instead of a number].")
    total = serializers.IntegerField(help_text="Points in the asked range before reduction.")
    reduced = serializers.BooleanField()


class PointsAnswerSerializer(serializers.Serializer):
    """The asked series that the run has, in the order asked for."""

    series = PointsSerializer(many=True)


class FiguresQuery(PageQuery):
    """Which figures."""

    kind = serializers.ChoiceField(FIGURES, required=False)
    key = TextField(max_length=160, required=False)
    iteration = serializers.IntegerField(min_value=0, max_value=LAST_ITERATION, required=False)


class FigureSerializer(serializers.Serializer):
    """A histogram, heat map, scatter, table or text that the trainer drew."""

    kind = serializers.ChoiceField(FIGURES)
    key = serializers.CharField()
    iteration = serializers.IntegerField(allow_null=True)
    attempt = serializers.IntegerField()
    time = serializers.DateTimeField()
    document = serializers.DictField(source="payload", help_text="As the event has it; `note` says what was left out.")


class CsvQuery(Strict):
    """Which series."""

    lists = ("key",)

    key = serializers.ListField(
        child=TextField(max_length=160), max_length=MOST_KEYS, required=False, help_text="None: all."
    )
    axis = serializers.ChoiceField(list(AXES), default="iteration")


class EstimateSerializer(serializers.Serializer):
    """A number with its 95 % interval over problems. Null: undefined, `note` or `nonfinite` says why."""

    value = serializers.FloatField(allow_null=True)
    lo = serializers.FloatField(allow_null=True)
    hi = serializers.FloatField(allow_null=True)
    problems = serializers.IntegerField()
    note = serializers.CharField(allow_blank=True)
    nonfinite = serializers.ChoiceField(NONFINITE, required=False)


class EvaluationsQuery(PageQuery):
    """Which evaluations."""

    name = TextField(max_length=60, required=False, help_text="validation, test, …")


class EvaluationSerializer(serializers.Serializer):
    """One policy on one set. Only evaluations of one `set` are comparable."""

    id = serializers.IntegerField(source="pk")
    name = serializers.CharField()
    policy = serializers.CharField()
    iteration = serializers.IntegerField()
    attempt = serializers.IntegerField()
    set = serializers.CharField(source="set.uid")
    task = serializers.CharField(source="set.task")
    split = serializers.CharField(source="set.split")
    checker_version = serializers.CharField(source="set.checker_version")
    sampler = serializers.DictField(source="set.sampler")
    n = serializers.IntegerField(source="samples", help_text="The largest k with an unbiased pass@k.")
    problems = serializers.SerializerMethodField()
    weights_hash = serializers.CharField()
    reused = serializers.BooleanField(help_text="Of the same weights on the same set; not measured again.")
    mean_length = serializers.FloatField(allow_null=True)
    token_entropy = serializers.FloatField(allow_null=True)
    truncated = serializers.FloatField(source="truncated_share", allow_null=True)
    created_at = serializers.DateTimeField()

    def get_problems(self, evaluation: Any) -> int:
        return len(evaluation.counts["uid"])


class ProblemSerializer(serializers.Serializer):
    """One problem: n samples, c of them correct. `start_…` are the run's start on the same set."""

    uid = serializers.CharField()
    text = serializers.CharField()
    answer = serializers.CharField(allow_null=True)
    chance = serializers.FloatField(allow_null=True)
    n = serializers.IntegerField()
    c = serializers.IntegerField()
    truncated = serializers.IntegerField()
    start_n = serializers.IntegerField(allow_null=True)
    start_c = serializers.IntegerField(allow_null=True)


class CurveSerializer(serializers.Serializer):
    """pass@k over `ks`, unbiased, with intervals; what guessing in the right format reaches, where that is known."""

    ks = serializers.ListField(child=serializers.IntegerField())
    estimates = EstimateSerializer(many=True)
    chance = serializers.ListField(child=serializers.FloatField(), allow_null=True)


class EvaluationDetailSerializer(EvaluationSerializer):
    """An evaluation with its curve and what happened to each problem."""

    curve = CurveSerializer()
    results = ProblemSerializer(many=True)


class NameQuery(Strict):
    """Which evaluations."""

    name = TextField(max_length=60, default="validation")


class PasskSerializer(serializers.Serializer):
    """pass@k over the run's iterations: `series[i][j]` belongs to `ks[i]` and `iterations[j]`."""

    iterations = serializers.ListField(child=serializers.IntegerField())
    ks = serializers.ListField(child=serializers.IntegerField())
    series = serializers.ListField(child=EstimateSerializer(many=True, allow_null=True))
    chance = serializers.ListField(child=serializers.FloatField(), allow_null=True)


class IterationsSerializer(serializers.Serializer):
    """Iterations of which rollouts were kept."""

    iterations = serializers.ListField(child=serializers.IntegerField())


class GroupsQuery(PageQuery):
    """Which groups."""

    iteration = serializers.IntegerField(min_value=0, max_value=LAST_ITERATION, required=False)
    prompt = TextField(max_length=80, required=False, help_text="Uid of a prompt.")


class GroupSerializer(serializers.Serializer):
    """One prompt's rollouts in one iteration: n of them, c correct."""

    id = serializers.IntegerField(source="pk")
    iteration = serializers.IntegerField()
    prompt = serializers.CharField(source="uid")
    text = serializers.CharField()
    answer = serializers.CharField(allow_null=True)
    n = serializers.IntegerField()
    c = serializers.IntegerField()
    mean_reward = serializers.FloatField(allow_null=True)


class GroupDetailSerializer(GroupSerializer):
    """A group with its rollouts, as the trainer wrote them: the columns depend on the method."""

    rollouts = serializers.ListField(child=serializers.DictField())
