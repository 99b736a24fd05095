"""Every error of the API: one shape, and codes that never change their meaning.

    {"error": {"code": "invalid", "message": "…", "fields": [{"path": "limit", "message": "…"}], "details": {},
     "request_id": "…"}}

`CODES` is the list that docs/api.md shows; `refused(code, …)` makes an exception of one of them.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.core.exceptions import ValidationError as DjangoValidationError
from django.core.signals import got_request_exception
from django.db import InterfaceError, OperationalError
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response

from webapp.core.file_storages import StorageError
from webapp.launch.services import InvalidConfig
from webapp.runs.services import ClaimLost
from webapp.runs.states import TRANSITIONS, BadTransition, RunState

log = logging.getLogger(__name__)

# code -> (status, what it means)
CODES: dict[str, tuple[int, str]] = {
    "malformed": (400, "The body is not what its content type says, or holds text that no database stores."),
    "invalid": (400, "A field or parameter is missing, unknown, or not allowed; `fields` says which."),
    "invalid_cursor": (400, "The cursor does not belong to this list; start again without one."),
    "token_in_address": (400, "A token stood in the address, where logs keep it. Revoke it."),
    "not_authenticated": (401, "The request has no token and no session."),
    "invalid_token": (401, "There is no such token."),
    "expired_token": (401, "The token's time is over."),
    "revoked_token": (401, "The token was revoked."),
    "csrf_failed": (403, "A browser's request without its CSRF token."),
    "insufficient_role": (403, "The person's role in the team does not allow this."),
    "insufficient_scope": (403, "The token was made without the scope that this needs."),
    "not_found": (404, "There is no such thing, or the person may not know that there is."),
    "file_missing": (404, "The row is there, but its file is not or cannot be read."),
    "method_not_allowed": (405, "The address has no such method; the header Allow lists those it has."),
    "bad_transition": (409, "The run's state does not allow this; `details` has the state and what it allows."),
    "claim_lost": (
        409,
        "The attempt is not this claim's, or no longer: it ended, was superseded, or its lease ran out.",
    ),
    "last_owner": (409, "A team keeps at least one owner: make someone else an owner first."),
    "in_use": (409, "Something still needs it, so it is not removed; `message` says what."),
    "no_files": (409, "The checkpoint's files were removed, or have not arrived; only its row is there."),
    "incomplete": (409, "Bytes of the upload are missing; ask the upload how far each file is."),
    "wrong_hash": (409, "A file of the upload is not the one that was announced; it begins again at 0."),
    "wrong_offset": (409, "The piece does not begin where the file ends; `details` says where it does."),
    "not_open": (409, "The upload is complete, or is being checked."),
    "too_long_to_wait": (
        409,
        "Reading so many bytes takes longer than a request may; a command does it on the server.",
    ),
    "event_gap": (409, "Events are missing before the first one sent; `details` says after which to go on."),
    "changed": (
        412,
        "It was changed since the ETag that If-Match names; `details` has the newer one. Look at it again.",
    ),
    "too_large": (413, "The body is larger than the server reads."),
    "unsupported_media_type": (415, "The content type is not one that the operation reads."),
    "unreadable_file": (422, "The uploaded file cannot be read like this; `message` names the row or the setting."),
    "invalid_config": (422, "The configuration cannot be run; `fields` lists everything wrong with it."),
    "key_reused": (422, "The Idempotency-Key was used before for another request."),
    "too_many_failures": (
        429,
        "Too many refused tokens from this address; the header Retry-After says how long to wait.",
    ),
    "server_error": (500, "A mistake of the server. Its log has the reason under the request's id."),
    "unavailable": (503, "The database or the file storage does not answer. Try again."),
}
# Codes of services' refusals that say more than that a field is wrong.
CONFLICTS = {
    code: code
    for code in (
        "last_owner",
        "in_use",
        "no_files",
        "too_long_to_wait",
        "incomplete",
        "wrong_hash",
        "not_open",
        "too_large",
    )
}
CONFLICTS |= {"used": "in_use", "unknown_file": "not_found"}
# Codes of Django REST framework that are called otherwise here.
_RENAMED = {
    "parse_error": "malformed",
    "permission_denied": "insufficient_role",
    "authentication_failed": "invalid_token",
}


class Refused(exceptions.APIException):
    """An error with one of the codes. `fields` are (path, message) pairs."""

    def __init__(self, code: str, message: str = "", *, fields: Iterable[tuple[str, str]] = (), **details: Any) -> None:
        self.status_code, meaning = CODES[code]
        super().__init__(message or meaning, code)
        self.code, self.fields, self.details = code, list(fields), details


class TokenRefusedByApi(exceptions.AuthenticationFailed):
    """A 401 whose code says why, so that Django REST framework adds WWW-Authenticate."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message, code)


def handle(exception: Exception, context: Mapping[str, Any]) -> Response:
    """The response to anything that a view raised."""
    request = context.get("request")
    status, code, message, fields, details = _described(exception)
    headers = {}
    if getattr(exception, "auth_header", None):
        headers["WWW-Authenticate"] = exception.auth_header  # type: ignore[attr-defined]
    if "retry_after" in details:
        headers["Retry-After"] = str(details["retry_after"])
    if code == "insufficient_scope":
        headers["WWW-Authenticate"] = (
            f'Bearer realm="unsqueeze", error="insufficient_scope", scope="{details["scope"]}"'
        )
    request_id = getattr(request, "request_id", "")
    if status >= 500:
        log.error("Request %s failed.", request_id, exc_info=exception)
        got_request_exception.send(sender=handle, request=getattr(request, "_request", None))
    body = {"code": code, "message": message, "fields": fields, "details": details, "request_id": request_id}
    return Response({"error": body}, status=status, headers=headers)


def _described(exception: Exception) -> tuple[int, str, str, list[dict[str, str]], dict[str, Any]]:
    """(status, code, message, fields, details)"""
    match exception:
        case Refused():
            found = [{"path": path, "message": text} for path, text in exception.fields]
            return exception.status_code, exception.code, str(exception.detail), found, exception.details
        case exceptions.ValidationError():
            problems = [{"path": path, "message": text} for path, text in flat(exception.detail)]
            return 400, "invalid", _summary(problems), problems, {}
        case DjangoValidationError() if code := CONFLICTS.get(getattr(exception, "code", None) or ""):
            return CODES[code][0], code, " ".join(exception.messages), [], {}
        case DjangoValidationError():
            problems = [{"path": path, "message": text} for path, text in of_django(exception)]
            return 400, "invalid", _summary(problems), problems, {}
        case InvalidConfig():
            problems = [
                {"path": f"config.{one.path}".rstrip("."), "message": one.message} for one in exception.problems
            ]
            return 422, "invalid_config", _summary(problems), problems, {}
        case BadTransition():
            allowed = sorted(TRANSITIONS[RunState(exception.found)])
            details = {"state": exception.found, "wanted": exception.wanted, "allowed": allowed}
            return 409, "bad_transition", f"{str(exception)[0].upper()}{str(exception)[1:]}.", [], details
        case ClaimLost():
            return 409, "claim_lost", CODES["claim_lost"][1], [], {}
        case Http404():
            return 404, "not_found", CODES["not_found"][1], [], {}
        case PermissionDenied():
            return 403, "insufficient_role", str(exception) or CODES["insufficient_role"][1], [], {}
        case RequestDataTooBig():
            return 413, "too_large", CODES["too_large"][1], [], {}
        case exceptions.APIException():
            code = str(getattr(exception.detail, "code", "") or exception.default_code)
            code = _RENAMED.get(code, code)
            code = code if code in CODES else "server_error"
            return exception.status_code, code, str(exception.detail), [], {}
        case OperationalError() | InterfaceError() | StorageError():
            return 503, "unavailable", CODES["unavailable"][1], [], {}
        case _:
            return 500, "server_error", CODES["server_error"][1], [], {}


def _summary(problems: list[dict[str, str]]) -> str:
    first = problems[0]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{first['path'] or 'body'}: {first['message']}{more}"


def flat(detail: Any, path: str = "") -> list[tuple[str, str]]:
    """The nested errors of a serializer as (dotted path, message)."""
    if isinstance(detail, Mapping):
        return [pair for name, inner in detail.items() for pair in flat(inner, _joined(path, str(name)))]
    if isinstance(detail, (list, tuple)):
        if all(isinstance(one, str) for one in detail):
            return [(path, str(one)) for one in detail]
        return [pair for position, inner in enumerate(detail) for pair in flat(inner, _joined(path, str(position)))]
    return [(path, str(detail))]


def _joined(path: str, name: str) -> str:
    return path if name == "non_field_errors" else f"{path}.{name}" if path else name


def of_django(error: DjangoValidationError) -> list[tuple[str, str]]:
    """The same of a model's or service's error."""
    if hasattr(error, "error_dict"):
        named = error.message_dict.items()
        return [("" if name == "__all__" else name, text) for name, texts in named for text in texts]
    return [("", text) for text in error.messages]
