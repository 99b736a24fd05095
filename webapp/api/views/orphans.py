"""Files of a project that no row names: list them, remove them."""

from typing import Any

from rest_framework.request import Request

from webapp.api.base import InProject, operation
from webapp.api.errors import Refused
from webapp.api.serializers.orphans import OrphansBody, OrphansRemovedSerializer, OrphansSerializer
from webapp.files.orphans import RUNS_OF_PAGE, Found, find_in, remove_orphans
from webapp.projects.models import Project
from webapp.teams.permissions import Capability

TAG = "Checkpoints"


class OrphansView(InProject):
    capabilities = {"GET": Capability.MANAGE}

    @operation(
        "listOrphans",
        "Files that no row names, and rows whose files are gone",
        tag=TAG,
        answer=OrphansSerializer,
        description=f"Looks at models, datasets, uploads, and checkpoints of the newest {RUNS_OF_PAGE} runs; on the server, "
        "`manage.py files --check` looks at everything.",
    )
    def get(self, request: Request) -> Any:
        return _found(self.project)


class OrphansRemovalView(InProject):
    capabilities = {"POST": Capability.MANAGE}

    @operation(
        "removeOrphans",
        "Remove listed orphans for good",
        tag=TAG,
        body=OrphansBody,
        answer=OrphansRemovedSerializer,
        description="Each is judged again right before it goes; one that changed within a day stays.",
    )
    def post(self, request: Request, body: Any) -> Any:
        listed = {verdict.unit.uri for verdict in _found(self.project).orphans}
        gone, kept = remove_orphans([uri for uri in body["uris"] if uri in listed])
        kept |= {uri: "it is no orphan of this project" for uri in body["uris"] if uri not in listed}
        return {"removed": [unit.uri for unit in gone], "kept": [{"uri": u, "why": why} for u, why in kept.items()]}


def _found(project: Project) -> Found:
    try:
        return find_in(project)
    except OSError as error:
        raise Refused(
            "unavailable", f"The storage does not answer, so that nothing can be compared: {error}"
        ) from error
