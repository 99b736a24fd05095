"""Trainers elsewhere: claim an attempt, keep the claim, send its events, end it."""

from typing import Any

from django.conf import settings
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from webapp.api.base import OfRun, operation
from webapp.api.errors import Refused
from webapp.api.parsing import EventsParser
from webapp.api.serializers.remote import (
    AcceptedSerializer,
    ClaimBody,
    ClaimSerializer,
    EndBody,
    HeartbeatSerializer,
)
from webapp.api.serializers.runs import RunSerializer
from webapp.launch import remote
from webapp.runs.services import Claim
from webapp.runs.states import RunState
from webapp.teams.permissions import Capability

TAG = "Trainers elsewhere"
HEADER = "X-Claim"
CLAIM = OpenApiParameter(
    HEADER,
    {"type": "string", "minLength": 1},
    OpenApiParameter.HEADER,
    required=True,
    description="From claiming the attempt.",
)


class _OfAttempt(OfRun):
    capabilities = {"POST": Capability.LAUNCH}

    def held(self, number: int) -> Claim:
        """The claim that the request names; whether it holds is decided where something is written."""
        token = self.request.headers.get(HEADER, "")
        if not token:
            raise Refused("invalid", fields=[(HEADER, "is required; claiming the attempt gives it.")])
        attempt = get_object_or_404(self.run.attempts, number=number)
        return Claim(attempt.pk, self.run.pk, number, token)


class ClaimView(OfRun):
    capabilities = {"POST": Capability.LAUNCH}

    @operation(
        "claimAttempt",
        "Take the queued attempt",
        tag=TAG,
        body=ClaimBody,
        answer=ClaimSerializer,
        status=201,
        errors=(409,),
        description="Of several who ask, workers of this installation included, one gets it.",
    )
    def post(self, request: Request, body: Any) -> Any:
        held = remote.take(self.run, worker=body["worker"])
        return {
            "run": held.run_id,
            "attempt": held.number,
            "claim": held.token,
            "lease_seconds": settings.LEASE_SECONDS,
            "config": self.run.config,
        }


class HeartbeatView(_OfAttempt):
    @operation("renewClaim", "Give a sign of life", tag=TAG, answer=HeartbeatSerializer, errors=(409,), extra=(CLAIM,))
    def post(self, request: Request, number: int) -> Any:
        return {"stop": remote.beat(self.held(number)), "lease_seconds": settings.LEASE_SECONDS}


class EventsView(_OfAttempt):
    parser_classes = [EventsParser]

    @operation(
        "sendEvents",
        "Store events of the attempt",
        tag=TAG,
        reads={"application/x-ndjson": OpenApiTypes.STR},
        answer=AcceptedSerializer,
        errors=(409,),
        extra=(CLAIM,),
        description="The lines of an attempt's events.jsonl: one envelope a line, numbered from 1 without gaps by each "
        "writer. All are stored or none. Sending again what was stored changes nothing, so after a lost connection just "
        "go on from the answer's `accepted_through`.",
    )
    def post(self, request: Request, number: int, body: Any) -> Any:
        held = self.held(number)
        try:
            return {"accepted_through": remote.accept(held, body if isinstance(body, bytes) else b"")}
        except remote.BadEvents as error:
            problems = [(f"line {line}", text) for line, text in error.problems[:50]]
            raise Refused(
                "invalid", f"Nothing was stored. {problems[0][0]}: {problems[0][1]}", fields=problems
            ) from error
        except remote.EventGap as error:
            message = f"Nothing was stored. Of the writer {error.writer!r}, events after {error.through} are missing."
            raise Refused("event_gap", message, writer=error.writer, accepted_through=error.through) from error


class EndView(_OfAttempt):
    @operation(
        "endAttempt",
        "Say how the attempt ended",
        tag=TAG,
        body=EndBody,
        answer=RunSerializer,
        errors=(409,),
        extra=(CLAIM,),
    )
    def post(self, request: Request, number: int, body: Any) -> Any:
        return remote.end(
            self.held(number),
            to=RunState(body["state"]),
            exit_code=body.get("exit_code"),
            reason=body.get("message", ""),
        )
