"""The stream through the API: a token, a cursor, what was and what comes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from django.test import AsyncClient

from tests.conftest import Cast
from tests.webapp.api.calling import PROJECT, Caller
from tests.webapp.making import claimed, make_run, scalars, send


@pytest.mark.django_db(transaction=True)
def test_what_was_and_what_comes(cast: Cast) -> None:
    run = make_run(cast.project)
    held = claimed(run)
    cursor = send(held, [scalars(1, a=1.0)]).live_seq
    send(held, [scalars(2, a=2.0)])
    headers = {"Authorization": f"Bearer {Caller(cast['viewer'], 'read').secret}"}

    async def read() -> list[tuple[int, list[float]]]:
        response = await AsyncClient().get(f"{PROJECT}/runs/{run.pk}/stream?after={cursor}", headers=headers)
        assert (response.status_code, response["Content-Type"]) == (200, "text/event-stream")
        parts = aiter(response)
        seen: list[tuple[int, list[float]]] = []
        async for part in parts:
            if not part.startswith(b":") and (found := _delta(part)) is not None:
                seen.append(found)
                if len(seen) == 1:
                    await asyncio.to_thread(_send, held)
            if len(seen) == 2:
                break
        await parts.aclose()  # type: ignore[attr-defined]
        return seen

    seen = asyncio.run(asyncio.wait_for(read(), 30))
    assert [y for _, y in seen] == [[2.0], [3.0]]
    assert cursor < seen[0][0] < seen[1][0]


def _delta(part: bytes) -> tuple[int, list[float]] | None:
    """(id, values) of a message."""
    fields = dict(line.split(": ", 1) for line in part.decode().splitlines() if ": " in line)
    if "data" not in fields:
        return None
    data: dict[str, Any] = json.loads(fields["data"])
    return int(fields["id"]), data["series"][0]["y"]


def _send(held: Any) -> None:
    from django.db import connection

    send(held, [scalars(3, a=3.0)])
    connection.close()
