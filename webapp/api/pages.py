"""Pages for people: their access tokens, and what the API can do."""

from itertools import groupby
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required, login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST

from webapp.accounts.models import User
from webapp.accounts.selectors import tokens_of
from webapp.accounts.services import create_token, revoke_token
from webapp.api.forms import TokenForm
from webapp.api.openapi import schema
from webapp.api.views.documents import OnlyReadView

SHOWN = 200


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def tokens(request: HttpRequest) -> HttpResponse:
    """The person's tokens and the form for another. The answer to a POST is the only place that ever shows a token."""
    user = request.user
    assert isinstance(user, User)
    form = TokenForm(request.POST if request.method == "POST" else None, user=user)
    made = secret = None
    if request.method == "POST" and form.is_valid():
        try:
            made, secret = create_token(user=user, **form.cleaned_data)
            form = TokenForm(user=user)
        except ValidationError as error:
            form.add_error(None, error)
    now = timezone.now()
    rows = [(token, token.ended(now)) for token in tokens_of(user)[:SHOWN]]
    return render(request, "api/tokens.html", {"form": form, "rows": rows, "made": made, "secret": secret})


@require_POST
def revoke(request: HttpRequest, public_id: str) -> HttpResponse:
    user = request.user
    assert isinstance(user, User)
    token = get_object_or_404(tokens_of(user), public_id=public_id)
    revoke_token(token=token)
    messages.success(request, f"The token {token.name} opens nothing any more.")
    return redirect("api:tokens")


@csrf_exempt
@login_not_required
def docs(request: HttpRequest) -> HttpResponse:
    """The page of the operations; to another method than a page's the answer is like an operation's."""
    return _docs(request) if request.method in ("GET", "HEAD") else OnlyReadView.as_view()(request)


@login_required
def _docs(request: HttpRequest) -> HttpResponse:
    """Every operation, from the schema."""
    found = [_operation(path, method, one) for path, ways in schema()["paths"].items() for method, one in ways.items()]
    found.sort(key=lambda one: one["tag"])
    topics = [(tag, list(group)) for tag, group in groupby(found, key=lambda one: one["tag"])]
    return render(request, "api/docs.html", {"topics": topics})


def _operation(path: str, method: str, one: dict[str, Any]) -> dict[str, Any]:
    """What the page shows of an operation."""
    return {
        "method": method.upper(),
        "path": path,
        "tag": one["tags"][0],
        "id": one["operationId"],
        "summary": one["summary"],
        "description": one.get("description", ""),
        "parameters": [
            {
                "name": parameter["name"],
                "place": parameter["in"],
                "required": parameter.get("required", False),
                "text": parameter.get("description", ""),
                "values": _values(parameter.get("schema", {})),
            }
            for parameter in one.get("parameters", ())
            if parameter["in"] != "path"
        ],
        "body": _body(one),
        "answers": [code for code in one["responses"] if code < "400"],
        "errors": [code for code in one["responses"] if code >= "400"],
    }


def _body(one: dict[str, Any]) -> list[dict[str, Any]]:
    """Fields of the body: name, whether required, type."""
    content = one.get("requestBody", {}).get("content", {})
    reference = content.get("application/json", {}).get("schema", {}).get("$ref", "")
    if not reference:
        return [{"name": kind, "required": True, "values": ""} for kind in content]
    described = schema()["components"]["schemas"][reference.rpartition("/")[2]]
    return [
        {
            "name": name,
            "required": name in described.get("required", ()),
            "values": _values(inner),
            "text": inner.get("description", ""),
        }
        for name, inner in described.get("properties", {}).items()
    ]


def _values(found: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in found:
        name = found["$ref"].rpartition("/")[2]
        inner = schema()["components"]["schemas"].get(name, {})
        return ", ".join(map(str, inner["enum"])) if "enum" in inner else name
    if "enum" in found:
        return ", ".join(map(str, found["enum"]))
    kind = found.get("type", "")
    text = " or ".join(kind) if isinstance(kind, list) else str(kind)
    if "minimum" in found and "maximum" in found:
        text += f", {found['minimum']} to {found['maximum']}"
    if "default" in found:
        text += f", by default {found['default']}"
    return text
