"""The library: what can be put into a configuration, and who is there to run it."""

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404
from rest_framework.request import Request

from webapp.api.base import ApiView, operation
from webapp.api.serializers.library import (
    ConfigSchemaSerializer,
    MethodDetailSerializer,
    MethodsSerializer,
    PresetsSerializer,
    QueuesSerializer,
    TasksSerializer,
    WaitingListSerializer,
    WorkerChanges,
    WorkerSerializer,
    WorkersSerializer,
)
from webapp.launch.selectors import live_workers, queue_names, served_queues, waiting_for
from webapp.launch.workers import set_draining
from webapp.methods import library
from webapp.teams.permissions import Capability

TAG, WORKERS = "Library", "Workers"


class MethodsView(ApiView):
    @operation("listMethods", "All methods", tag=TAG, answer=MethodsSerializer)
    def get(self, request: Request) -> Any:
        return {"methods": library.methods()}


class MethodView(ApiView):
    @operation("getMethod", "A method with the schema of its parameters", tag=TAG, answer=MethodDetailSerializer)
    def get(self, request: Request, slug: str) -> Any:
        return _or_404(library.method(slug))


class PresetsView(ApiView):
    @operation("listPresets", "All base algorithms", tag=TAG, answer=PresetsSerializer)
    def get(self, request: Request) -> Any:
        return {"presets": library.presets()}


class TasksView(ApiView):
    @operation("listTasks", "All tasks with the schemas of their parameters", tag=TAG, answer=TasksSerializer)
    def get(self, request: Request) -> Any:
        return {"tasks": library.tasks()}


class ConfigSchemaView(ApiView):
    @operation(
        "getConfigSchema",
        "The JSON schema of a configuration of one kind: rl, sft or evaluate",
        tag=TAG,
        answer=ConfigSchemaSerializer,
    )
    def get(self, request: Request, kind: str) -> Any:
        return {"kind": kind, "config": _or_404(library.config_schema(kind))}


class QueuesView(ApiView):
    @operation("listQueues", "Queues that a run may name", tag=WORKERS, answer=QueuesSerializer)
    def get(self, request: Request) -> Any:
        served = served_queues()
        return {"queues": [{"name": name, "served": name in served} for name in queue_names()]}


class WorkersView(ApiView):
    @operation("listWorkers", "Workers that are there now", tag=WORKERS, answer=WorkersSerializer)
    def get(self, request: Request) -> Any:
        return {"workers": live_workers()}


class WorkerView(ApiView):
    capabilities = {"PATCH": Capability.MANAGE}

    @operation(
        "drainWorker",
        "Let a worker take no more runs, or take them again",
        tag=WORKERS,
        body=WorkerChanges,
        answer=WorkerSerializer,
        description="What it holds it finishes. Workers serve every team: only administrators of the installation may "
        "do this.",
    )
    def patch(self, request: Request, name: str, body: Any) -> Any:
        if not self.user.is_superuser:
            raise PermissionDenied("Workers serve every team; only administrators of the installation may drain them.")
        found = set_draining(name=name, draining=body["draining"])
        if found is None:
            raise Http404
        return found


class QueueView(ApiView):
    @operation(
        "listWaiting",
        "Queued runs of all teams, oldest first, and why each waits",
        tag=WORKERS,
        answer=WaitingListSerializer,
        description="Runs of teams that one does not belong to have their place, and no name.",
    )
    def get(self, request: Request) -> Any:
        return {"waiting": waiting_for(self.user)}


def _or_404(found: dict[str, Any] | None) -> dict[str, Any]:
    if found is None:
        raise Http404
    return found
