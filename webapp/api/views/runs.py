"""Runs: list, launch, look, change, stop, resume, and their history."""

from typing import Any

from django.db import transaction
from django.http import Http404, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request

from webapp.api.base import IF_MATCH, InProject, OfRun, digest_of, operation
from webapp.api.errors import Refused
from webapp.api.serializers.runs import (
    ORDERS,
    AttemptSerializer,
    ChangesQuery,
    ChangesSerializer,
    CopyBody,
    DocumentBody,
    LaunchBody,
    LogQuery,
    LogSerializer,
    ResolvedSerializer,
    ResumeBody,
    RunChanges,
    RunDetailSerializer,
    RunSerializer,
    RunsQuery,
    TransitionSerializer,
)
from webapp.api.services import merged
from webapp.checkpoints.models import Checkpoint
from webapp.checkpoints.selectors import checkpoint_in
from webapp.launch.preview import costs, warnings
from webapp.launch.services import DEFAULT_QUEUE, cancel_run, checked, launch_run, resume_run
from webapp.live.selectors import delta
from webapp.live.views import stream_of
from webapp.projects.models import Project
from webapp.runlist.selectors import Filters, runs_for
from webapp.runs.models import Run
from webapp.runs.selectors import attempts_of, log_tail, run_in, transitions_of
from webapp.runs.services import describe, lock, set_auto_resume
from webapp.teams.permissions import Capability

TAG = "Runs"
CONFLICT, CONFIG = (409,), (422,)


class RunsView(InProject):
    capabilities = {"POST": Capability.LAUNCH}

    @operation("listRuns", "The project's runs", tag=TAG, query=RunsQuery, paged=RunSerializer)
    def get(self, request: Request, query: Any) -> Any:
        filters = Filters(
            search=query.get("search", ""),
            state=query.get("state", ""),
            kind=query.get("kind", ""),
            method=query.get("method", ""),
            tag=query.get("tag", ""),
        )
        sign, name = ("-", query["order"][1:]) if query["order"].startswith("-") else ("", query["order"])
        return runs_for(self.project, filters), sign + ORDERS[name]

    @operation(
        "launchRun",
        "Launch a run",
        tag=TAG,
        body=LaunchBody,
        answer=RunDetailSerializer,
        status=201,
        errors=CONFIG,
        repeatable=True,
        description="The configuration may leave out everything that has a default. The run starts as soon as a worker "
        "is free. With an Idempotency-Key, sending again after a lost connection launches nothing twice.",
    )
    def post(self, request: Request, body: Any) -> Any:
        return launch_run(
            self.project,
            self.user,
            body["config"],
            name=body.get("name", ""),
            parent=self._parent(body.get("parent")),
            tags=body.get("tags", ()),
            notes=body.get("notes", ""),
            queue=body.get("queue", DEFAULT_QUEUE),
            auto_resume=body.get("auto_resume"),
        )

    def _parent(self, run_id: str | None) -> Run | None:
        if not run_id:
            return None
        try:
            return run_in(self.project, run_id)
        except Http404 as error:
            raise Refused("invalid", fields=[("parent", "is no run of this project.")]) from error


class ValidateView(InProject):
    capabilities = {"POST": Capability.LAUNCH}

    @operation(
        "validateRun",
        "Check a configuration, and fill it in",
        tag=TAG,
        body=DocumentBody,
        answer=ResolvedSerializer,
        errors=CONFIG,
        description="Exactly what launching would check; nothing is launched.",
    )
    def post(self, request: Request, body: Any) -> Any:
        config, _version = checked(self.project, body["config"])
        return {"config": config, "costs": costs(config), "warnings": warnings(config)}


def written(run: Run) -> str:
    """The ETag of what people write about a run."""
    return digest_of(run.name, run.notes, run.tags, run.auto_resume)


class RunView(OfRun):
    capabilities = {"PATCH": Capability.EDIT}

    @operation("getRun", "A run with its configuration", tag=TAG, answer=RunDetailSerializer, etag=written)
    def get(self, request: Request) -> Any:
        return self.run

    @operation(
        "describeRun",
        "Change a run's name, notes and tags",
        tag=TAG,
        body=RunChanges,
        answer=RunDetailSerializer,
        errors=(412,),
        extra=(IF_MATCH,),
        etag=written,
        description="The ETag is that of what people write (name, notes, tags, auto_resume), not of the run's progress.",
    )
    def patch(self, request: Request, body: Any) -> Any:
        with transaction.atomic():
            self.check_unchanged(written(lock(self.run.pk)))
            if "auto_resume" in body:
                set_auto_resume(run=self.run, limit=body["auto_resume"])
            return describe(run=self.run, name=body.get("name"), notes=body.get("notes"), tags=body.get("tags"))


class StopView(OfRun):
    capabilities = {"POST": Capability.LAUNCH}

    @operation(
        "stopRun",
        "Stop a run, or cancel it in the queue",
        tag=TAG,
        answer=RunSerializer,
        errors=CONFLICT,
        repeatable=True,
        description="An active run saves its state and leaves; it can be resumed. Stopping one that is stopping already "
        "changes nothing.",
    )
    def post(self, request: Request) -> Any:
        return cancel_run(self.run, self.user)


class ResumeView(OfRun):
    capabilities = {"POST": Capability.LAUNCH}

    @operation(
        "resumeRun",
        "Resume a run from its newest checkpoint, or a chosen one",
        tag=TAG,
        body=ResumeBody,
        answer=RunSerializer,
        errors=CONFLICT,
        repeatable=True,
        description="Makes a new attempt of a run that was stopped, cancelled, failed or lost. Refused (invalid_config) "
        "where it names secrets that the team no longer has.",
    )
    def post(self, request: Request, body: Any) -> Any:
        chosen = body.get("checkpoint")
        resume_run(self.run, self.user, checkpoint=_chosen(self.project, chosen) if chosen else None)
        return run_in(self.project, self.run.pk)


class CopiesView(OfRun):
    capabilities = {"POST": Capability.LAUNCH}

    @operation(
        "copyRun",
        "Launch a run's configuration again, changed or from other weights",
        tag=TAG,
        body=CopyBody,
        answer=RunDetailSerializer,
        status=201,
        errors=(409, 422),
        repeatable=True,
        description="Tags, queue and automatic resumes are those of the run, which becomes the copy's parent.",
    )
    def post(self, request: Request, body: Any) -> Any:
        config = merged(self.run.config, body.get("changes", {}))
        if chosen := body.get("checkpoint"):
            source = _chosen(self.project, chosen)
            if not source.available:
                raise Refused("no_files")
            config = merged(config, {"policy": {"checkpoint": source.policy_uri}})
        return launch_run(
            self.project,
            self.user,
            config,
            name=body.get("name", ""),
            parent=self.run,
            tags=self.run.tags,
            notes=body.get("notes", ""),
            queue=self.run.queue,
            auto_resume=self.run.auto_resume,
        )


def _chosen(project: Project, number: int) -> Checkpoint:
    try:
        return checkpoint_in(project, number)
    except Http404 as error:
        raise Refused("not_found", f"The project has no checkpoint {number}.") from error


class AttemptsView(OfRun):
    @operation("listAttempts", "A run's attempts, newest first", tag=TAG, paged=AttemptSerializer)
    def get(self, request: Request, query: Any) -> Any:
        return attempts_of(self.run), "-number"


class TransitionsView(OfRun):
    @operation("listTransitions", "Who moved the run from state to state, and why", tag=TAG, paged=TransitionSerializer)
    def get(self, request: Request, query: Any) -> Any:
        return transitions_of(self.run), "pk"


class LogView(OfRun):
    @operation("getLog", "The end of the run's log", tag=TAG, query=LogQuery, answer=LogSerializer)
    def get(self, request: Request, query: Any) -> Any:
        return {"lines": log_tail(self.run, lines=query["lines"])}


class ChangesView(OfRun):
    @operation(
        "getChanges",
        "What became visible after a cursor",
        tag=TAG,
        query=ChangesQuery,
        answer=ChangesSerializer,
        description="Answers at once. Ask again with the answer's cursor; or read `stream`, which sends the same.",
    )
    def get(self, request: Request, query: Any) -> Any:
        found = delta(self.run.pk, query["after"])
        if found is None:
            raise Http404
        return found


class StreamView(OfRun):
    @operation(
        "streamRun",
        "The same as it happens, as Server-Sent Events",
        tag=TAG,
        query=ChangesQuery,
        raw={"text/event-stream": OpenApiTypes.STR},
        description="Messages `delta`, whose data are an answer of `changes` and whose id is its cursor. Ends after ten "
        "minutes at most: open it again with the last cursor.",
    )
    def get(self, request: Request, query: Any) -> StreamingHttpResponse:
        return stream_of(self.run.pk, query["after"])
