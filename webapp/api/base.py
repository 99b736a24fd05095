"""What every operation of the API is made of.

A view class is one address; its methods carry `@operation(…)`, from which come both what is checked while the server
runs and what the schema says: the query's and the body's fields, the answer, the errors.

    class RunView(OneRun):
        capabilities = {"GET": Capability.VIEW, "PATCH": Capability.EDIT}

        @operation("getRun", "One run", answer=RunSerializer)
        def get(self, request: Request) -> Any:
            return self.run
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.utils.http import parse_etags
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from webapp.accounts.models import AccessToken, Scope, User
from webapp.accounts.selectors import TOKEN
from webapp.api.errors import CODES, Refused
from webapp.api.pagination import Page, page_of
from webapp.api.serializers.common import ErrorSerializer, PageQuery, Strict, page_serializer
from webapp.api.services import LONGEST_KEY, once
from webapp.projects.models import Project
from webapp.projects.selectors import Access, access_to
from webapp.runs.models import Run
from webapp.runs.selectors import run_in
from webapp.teams.models import Role, Team
from webapp.teams.permissions import Capability
from webapp.teams.selectors import team_for

SCOPES: Mapping[Capability, Scope] = {
    Capability.VIEW: Scope.READ,
    Capability.LAUNCH: Scope.LAUNCH,
    Capability.EDIT: Scope.WRITE,
    Capability.MANAGE: Scope.MANAGE,
}
METHODS = ("get", "head", "post", "put", "patch", "delete")
ALWAYS = (400, 401, 403, 404, 405, 429, 500, 503)
WITH_BODY = (413, 415)
IDEMPOTENCY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": "^[ -~]+$"},
    OpenApiParameter.HEADER,
    description="The same request with the same key acts once and gets the same answer for 24 hours.",
)

IF_MATCH = OpenApiParameter(
    "If-Match",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="An ETag that was answered before: changes nothing (412) where somebody else has changed it since.",
)


class ApiView(APIView):
    """Anyone who is signed in. `capabilities` says what each method needs; GET needs to see."""

    http_method_names = METHODS
    capabilities: ClassVar[Mapping[str, Capability]] = {}
    request: Any

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        wrapped = super().initialize_request(request, *args, **kwargs)
        wrapped.request_id = secrets.token_hex(8)  # type: ignore[attr-defined]
        return wrapped

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if TOKEN.search(request.META.get("QUERY_STRING", "")) or TOKEN.search(request.path):
            raise Refused("token_in_address")
        super().initial(request, *args, **kwargs)
        self.check_scope()
        self.enter(**kwargs)

    def finalize_response(self, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        done = super().finalize_response(request, response, *args, **kwargs)
        done.headers["X-Request-ID"] = getattr(request, "request_id", "")
        if not done.has_header("Cache-Control"):
            done.headers["Cache-Control"] = "private, no-store"
        return done

    @property
    def needed(self) -> Capability:
        return self.capabilities.get(self.request.method, Capability.VIEW)

    @property
    def token(self) -> AccessToken | None:
        return self.request.auth if isinstance(self.request.auth, AccessToken) else None

    @property
    def user(self) -> User:
        user: User = self.request.user
        return user

    def check_scope(self) -> None:
        """Whether the token was made for this."""
        scope = SCOPES[self.needed]
        if self.token is not None and scope.value not in self.token.scopes:
            message = (
                f"The token {self.token.hint} lacks the scope {scope.value!r}; it has {', '.join(self.token.scopes)}."
            )
            raise Refused("insufficient_scope", message, scope=scope.value)

    def check_unchanged(self, etag: str) -> None:
        """Raises Refused where If-Match names another state than this one. Ask while what is to be changed is locked."""
        given = self.request.headers.get("If-Match")
        if given is not None and not {"*", f'"{etag}"'} & set(parse_etags(given)):
            raise Refused("changed", etag=f'"{etag}"')

    def enter(self, **kwargs: Any) -> None:
        """Finds what the address names. Raises Http404 or PermissionDenied."""

    def opens(self, team: str, project: str = "") -> None:
        """Raises Http404 where the token was made for another team or project."""
        if self.token is not None and not self.token.opens(team, project):
            raise Http404


class InTeam(ApiView):
    """Below a team: `self.team`, `self.role`."""

    team: Team
    role: Role

    def enter(self, **kwargs: Any) -> None:
        self.opens(kwargs["team"])
        self.team, self.role = team_for(self.user, kwargs["team"], self.needed)


class InProject(ApiView):
    """Below a project: `self.project`, `self.access`."""

    project: Project
    access: Access

    def enter(self, **kwargs: Any) -> None:
        team, project = kwargs["team"], kwargs["project"]
        self.opens(team, project)
        self.access = access_to(self.user, team=team, project=project, capability=self.needed)
        self.project = self.access.project


class OfRun(InProject):
    """Below a run: `self.run`."""

    run: Run

    def enter(self, **kwargs: Any) -> None:
        super().enter(**kwargs)
        self.run = run_in(self.project, kwargs["run"])


NAMED = ("team", "project", "run")
"""Parts of the address that `enter` has used up; a method receives the others."""


def operation(
    name: str,
    summary: str,
    *,
    tag: str,
    description: str = "",
    query: type[Strict] | None = None,
    body: type[Strict] | None = None,
    answer: Any = None,
    paged: type[serializers.Serializer] | None = None,
    status: int = 200,
    errors: tuple[int, ...] = (),
    repeatable: bool = False,
    raw: Mapping[str, Any] | None = None,
    reads: Mapping[str, Any] | None = None,
    also: Mapping[Any, Any] | None = None,
    extra: tuple[OpenApiParameter, ...] = (),
    etag: Callable[[Any], str] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declares a method. It receives `query` and `body` as checked dictionaries where they are declared.

    `answer` is the serializer of what the method returns; with `paged` (a row's serializer) it returns a queryset and
    the column to order by instead. `repeatable`: honours an Idempotency-Key. `raw` describes an answer that is no JSON:
    {"application/…": type}; the method then returns a response itself. `reads` is the same for a body that is no JSON,
    which the method receives as its parser gives it. `also` are further answers that are no errors. `extra` are headers
    that the method reads itself. `etag` gives the answer's header ETag, from what the method returns.
    """
    if paged is not None:
        query, answer = query or PageQuery, page_serializer(paged)
    parameters: list[Any] = [*([query] if query is not None else ()), *extra]
    if repeatable:
        parameters.append(IDEMPOTENCY)
    statuses = sorted(
        {*ALWAYS, *errors, *(WITH_BODY if body or reads or repeatable else ()), *((422,) if repeatable else ())}
    )
    responses: dict[Any, Any] = {code: OpenApiResponse(ErrorSerializer, _meaning(code)) for code in statuses}
    responses |= also or {}
    if raw is not None:
        responses |= {(status, kind): what for kind, what in raw.items()}
    else:
        responses[status] = OpenApiResponse(answer, summary)

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def checked(self: ApiView, request: Request, **kwargs: Any) -> HttpResponseBase:
            given = {key: value for key, value in kwargs.items() if key not in NAMED}
            asked = _checked(query, _flat(request.query_params, query))
            if query is not None:
                given["query"] = asked
            if body is not None:
                given["body"] = _checked(body, request.data)
            elif reads is not None:
                given["body"] = request.data
            elif repeatable:
                _checked(None, request.data)

            def act() -> Any:
                return _respond(self, request, method(self, request, **given), asked)

            key = request.headers.get("Idempotency-Key") if repeatable else None
            if key is None:
                return act()  # type: ignore[no-any-return]
            return once(
                user=self.user, key=key, method=str(request.method), path=request.path, body=request.data, act=act
            )

        def _respond(view: ApiView, request: Request, found: Any, asked: Mapping[str, Any]) -> Any:
            if isinstance(found, HttpResponseBase):
                return found
            if paged is not None:
                rows, order = found
                found = _page(request, rows, order, asked)
            headers = {"ETag": f'"{etag(found)}"'} if etag is not None else None
            return Response(
                answer(found, context={"request": request}).data if answer else None, status, headers=headers
            )

        return extend_schema(  # type: ignore[no-any-return]
            operation_id=name,
            summary=summary,
            description=description or f"{summary}.",
            tags=[tag],
            parameters=parameters,
            request=body or reads,
            responses=responses,
        )(checked)

    return decorate


def digest_of(*parts: Any) -> str:
    """An ETag for what people write: equal for equal parts (JSON values)."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]


def _page(request: Request, rows: QuerySet[Any], order: str, asked: Mapping[str, Any]) -> Page:
    return page_of(rows, order=order, limit=asked["limit"], cursor=asked.get("cursor"), address=request.path)


def _flat(params: Any, query: type[Strict] | None) -> dict[str, Any]:
    """The query string as a dictionary; what is given twice must be a list."""
    found: dict[str, Any] = {}
    lists = getattr(query, "lists", ()) if query else ()
    for key in params:
        values = params.getlist(key)
        if key in lists:
            found[key] = values
        elif len(values) > 1:
            raise Refused("invalid", fields=[(key, "is given more than once.")])
        else:
            found[key] = values[0]
    return found


def _checked(serializer: type[Strict] | None, data: Any) -> dict[str, Any]:
    """The validated values; without a serializer nothing may be there. Raises ValidationError."""
    found = (serializer or Strict)(data=data)
    found.is_valid(raise_exception=True)
    values: dict[str, Any] = found.validated_data
    return values


def _meaning(status: int) -> str:
    return " · ".join(f"`{code}`" for code, (its, _) in CODES.items() if its == status)
