"""Calling the API as a program would."""

from __future__ import annotations

from typing import Any

from django.test import Client

from webapp.accounts.models import AccessToken, Scope, User
from webapp.accounts.services import create_token

BASE = "/api/v1"
PROJECT = f"{BASE}/projects/lab/countdown"


class Caller:
    """A program with a token. Paths are below the project; those that start with a slash are addresses."""

    def __init__(self, user: User, *scopes: str, within: str = "") -> None:
        self.token: AccessToken
        self.token, self.secret = create_token(user=user, name="t", scopes=scopes or Scope.values, within=within)
        self.client = Client(enforce_csrf_checks=True)

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        url = path if path.startswith("/") else f"{PROJECT}/{path}".rstrip("/")
        more: dict[str, Any] = {} if body is None else {"data": body, "content_type": "application/json"}
        if isinstance(body, bytes):
            more["content_type"] = headers.pop("Content-Type", "application/json")
        asked = {"Authorization": f"Bearer {self.secret}", **headers}
        return getattr(self.client, method)(url, headers=asked, **more)

    def get(self, path: str, **headers: str) -> Any:
        return self("get", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self("post", path, {} if body is None else body, **headers)


def error(response: Any) -> tuple[int, str]:
    """(status, code)"""
    return response.status_code, response.json()["error"]["code"]
