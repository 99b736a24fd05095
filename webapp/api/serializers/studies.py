"""Studies: a claim, arms × seeds, and the verdict."""

from typing import Any

from rest_framework import serializers

from webapp.api.serializers.common import NameField, Strict, TextField
from webapp.studies.models import Member, Study

FORMS = Study.Form.values


class StudyBody(Strict):
    """Which study, and how much of it."""

    study = TextField(max_length=60, help_text="Slug of a study that comes with the product.")
    form = serializers.ChoiceField(FORMS, default="full")
    queue = NameField(max_length=40, required=False, help_text="Which workers may take its runs.")


class StudySerializer(serializers.Serializer):
    """A launched study."""

    id = serializers.IntegerField()
    slug = serializers.CharField()
    title = serializers.CharField()
    form = serializers.ChoiceField(FORMS)
    open = serializers.BooleanField(help_text="There is still something to launch.")
    page = serializers.CharField(source="get_absolute_url", help_text="Where people see it.")
    created_at = serializers.DateTimeField()


class MemberSerializer(serializers.Serializer):
    """A run's place in a study."""

    run = serializers.CharField(source="run_id")
    part = serializers.ChoiceField(Member.Part.values)
    arm = serializers.CharField(help_text="Empty: the base.")
    seed = serializers.SerializerMethodField(help_text="null: of no seed.")
    state = serializers.CharField(source="run.state")

    def get_seed(self, member: Member) -> int | None:
        return member.seed if member.seed >= 0 else None


class StudyDetailSerializer(StudySerializer):
    """A study with its runs and what was found so far."""

    document = serializers.DictField(help_text="The study as it was at the launch.")
    members = MemberSerializer(source="members.all", many=True)
    findings = serializers.SerializerMethodField(
        help_text="Verdict, sentence, reasons, contrasts, arms, frontier; computed from the stored evaluations."
    )

    def get_findings(self, study: Study) -> dict[str, Any]:
        from webapp.studies.selectors import findings_of

        return findings_of(study).json()
