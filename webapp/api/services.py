"""Requests that may be sent twice and act once."""

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from webapp.accounts.models import User
from webapp.api.errors import Refused
from webapp.api.models import Answer

KEPT = timedelta(hours=24)
LONGEST_KEY = 200
REPLAYED = "Idempotency-Replayed"


def once(*, user: User, key: str, method: str, path: str, body: Any, act: Callable[[], Response]) -> Response:
    """The response of `act`, or the one it gave when this request came with this key within the last 24 hours.

    The key's row is written in the transaction of `act` itself: of two requests at once, the later waits for the
    earlier and repeats its response; when `act` raises, nothing is kept and the key is free again. Raises Refused.
    """
    if not (1 <= len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
        message = f"Expected 1 to {LONGEST_KEY} printable ASCII characters."
        raise Refused("invalid", fields=[("Idempotency-Key", message)])
    asked = _digest(method, path, body)
    now = timezone.now()
    Answer.objects.filter(created_at__lt=now - KEPT).delete()
    try:
        with transaction.atomic():
            answer = Answer.objects.create(user=user, key=key, request=asked, created_at=now)
            response = act()
            answer.status, answer.body = response.status_code, json.loads(JSONRenderer().render(response.data))
            answer.save(update_fields=["status", "body"])
            return response
    except IntegrityError:
        kept = Answer.objects.filter(user=user, key=key).first()
        if kept is None:
            raise
    if kept.request != asked:
        raise Refused("key_reused")
    return Response(kept.body, status=kept.status, headers={REPLAYED: "true"})


def _digest(method: str, path: str, body: Any) -> str:
    text = json.dumps([method, path, body], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def merged(document: Any, changes: Any) -> Any:
    """The document with the changes of a JSON merge patch (RFC 7396): objects by key, null removes, all else replaces."""
    if not isinstance(changes, Mapping):
        return changes
    found = dict(document) if isinstance(document, Mapping) else {}
    for name, value in changes.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found
