"""Studies: list, launch, look, stop."""

from typing import Any

from rest_framework.request import Request

from trainer.studies import load_study, study_slugs
from webapp.api.base import InProject, operation
from webapp.api.errors import Refused
from webapp.api.serializers.studies import StudyBody, StudyDetailSerializer, StudySerializer
from webapp.launch.services import DEFAULT_QUEUE
from webapp.studies.models import Study
from webapp.studies.selectors import study_in
from webapp.studies.services import launch_study, stop_study
from webapp.teams.permissions import Capability

TAG = "Studies"


class StudiesView(InProject):
    capabilities = {"POST": Capability.LAUNCH}

    @operation("listStudies", "The project's studies", tag=TAG, paged=StudySerializer)
    def get(self, request: Request, query: Any) -> Any:
        return Study.objects.filter(project=self.project), "-created_at"

    @operation(
        "launchStudy",
        "Launch a study",
        tag=TAG,
        body=StudyBody,
        answer=StudyDetailSerializer,
        status=201,
        errors=(422,),
        repeatable=True,
        description="Queues a run for each arm and seed; a run of the project with the same configuration is shared. "
        "Evaluations follow when the arms end.",
    )
    def post(self, request: Request, body: Any) -> Any:
        if body["study"] not in study_slugs():
            raise Refused("invalid", fields=[("study", f"is none of {', '.join(study_slugs())}.")])
        contract = load_study(body["study"])
        return launch_study(self.project, self.user, contract, body["form"], queue=body.get("queue", DEFAULT_QUEUE))


class StudyView(InProject):
    @operation("getStudy", "A study with its runs and findings", tag=TAG, answer=StudyDetailSerializer)
    def get(self, request: Request, study: int) -> Any:
        return study_in(self.project, study)


class StudyStopView(InProject):
    capabilities = {"POST": Capability.LAUNCH}

    @operation(
        "stopStudy",
        "Stop a study's runs",
        tag=TAG,
        answer=StudyDetailSerializer,
        description="Those that are not over and belong to no other study. What was measured stays.",
    )
    def post(self, request: Request, study: int) -> Any:
        found = study_in(self.project, study)
        stop_study(found, self.user)
        return found
