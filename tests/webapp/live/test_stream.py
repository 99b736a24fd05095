"""What a stream carries, and who may open it."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from django.test import AsyncClient, Client
from django.urls import reverse

from tests.conftest import Cast
from tests.webapp.making import claimed, evaluation_event, make_run, scalars, send
from trainer.contract import events as ev
from webapp.live import selectors
from webapp.live.selectors import delta
from webapp.projects.models import Project
from webapp.runs.models import Run
from webapp.runs.services import add_attempt, finish
from webapp.runs.states import RunState


def found(run: Run, since: int) -> dict[str, Any]:
    news = delta(run.pk, since)
    assert news is not None
    json.dumps(news, allow_nan=False)
    return news


def test_every_kind_of_news_is_in_the_delta_once(project: Project) -> None:
    run = make_run(project)
    held = claimed(run)
    axes = ev.Axes(iteration=1)
    before = Run.objects.get(pk=run.pk).live_seq
    send(held, [
        ev.State(state="running"), scalars(1, reward=0.5, kl=math.nan), evaluation_event(1, [(4, 1)]),
        ev.Phase(axes=axes, name="rl", title="RL"), ev.Log(message="hello"), ev.Mark(mark="alert", iteration=1),
        ev.Histogram(axes=axes, key="lengths", edges=[0, 1], counts=[2]),
        ev.Rollouts(axes=axes, uri="attempts/1/p.parquet", rows=0, groups=[]),
        ev.Checkpoint(axes=axes, uri="attempts/1/c", weights_hash="h", size_bytes=1),
        ev.Progress(iteration=1, total_iterations=4, stage="update", eta_seconds=3.0),
    ])  # fmt: skip
    news = found(run, before)
    assert (news["run"]["state"], news["run"]["iteration"], news["run"]["eta_seconds"]) == ("running", 1, 3.0)
    assert {s["key"]: (s["y"], s["nonfinite"]) for s in news["series"]} == {
        "reward": ([0.5], []),
        "kl": ([None], [[0, "nan"]]),
    }
    assert news["axes"][0]["iteration"] == 1
    assert [e["name"] for e in news["evaluations"]] == ["validation"]
    assert (news["phases"][0]["title"], news["logs"][0]["message"], news["marks"][0]["key"]) == ("RL", "hello", "alert")
    assert news["drawn"] == [{"kind": "histogram", "key": "lengths", "iteration": 1}]
    assert (news["rollouts"], news["checkpoints"]) == ([1], True)
    assert set(found(run, news["cursor"])) == {"cursor", "run"}


def test_pieces_add_up_to_what_a_late_visitor_gets(project: Project) -> None:
    run = make_run(project)
    held = claimed(run)
    points: dict[int, float] = {}
    cursor = 0
    for at in range(1, 6):
        send(held, [scalars(at, a=float(at))])
        news = found(run, cursor)
        cursor = news["cursor"]
        points |= dict(zip(news["series"][0]["iteration"], news["series"][0]["y"], strict=True))
    [late] = found(run, 0)["series"]
    assert dict(zip(late["iteration"], late["y"], strict=True)) == points


def test_a_rewind_tells_the_page_from_where_to_forget(project: Project) -> None:
    run = make_run(project)
    held = claimed(run)
    cursor = send(held, [scalars(i, a=float(i)) for i in range(1, 6)]).live_seq
    finish(held, to=RunState.STOPPED, exit_code=10, reason="", worker="w")
    add_attempt(run=run)
    send(claimed(Run.objects.get(pk=run.pk)), [ev.Mark(mark="rewind", iteration=3), scalars(4, a=40.0)])
    news = found(run, cursor)
    assert news["rewind"] == 3
    assert [(s["iteration"], s["y"]) for s in news["series"]] == [([4], [40.0])]
    assert news["run"]["attempt"] == 2


def test_what_is_stored_while_a_delta_is_read_comes_with_the_next_one_alone(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(project)
    held = claimed(run)
    send(held, [ev.Log(message="before"), scalars(1, a=1.0)])

    def meanwhile(found: Run) -> dict[str, Any]:
        monkeypatch.undo()
        axes = ev.Axes(iteration=2)
        send(held, [
            ev.Log(message="meanwhile"), scalars(1, b=9.0), scalars(2, a=2.0),
            evaluation_event(2, [(4, 1)]), ev.Phase(axes=axes, name="rl", title="RL"),
            ev.Rollouts(axes=axes, uri="attempts/1/p.parquet", rows=0, groups=[]),
            ev.Histogram(axes=axes, key="lengths", edges=[0, 1], counts=[2]),
            ev.Checkpoint(axes=axes, uri="attempts/1/c", weights_hash="h", size_bytes=1),
        ])  # fmt: skip
        return selectors.run_json(found)

    monkeypatch.setattr(selectors, "run_json", meanwhile)
    first = found(run, 0)
    second = found(run, first["cursor"])
    assert [line["message"] for line in first["logs"]] == ["before"]
    assert [line["message"] for line in second["logs"]] == ["meanwhile"]
    points = [{one["key"]: one["iteration"] for one in news["series"]} for news in (first, second)]
    assert points == [{"a": [1]}, {"a": [2], "b": [1]}]
    later = {"evaluations", "phases", "rollouts", "drawn", "checkpoints"}
    assert not later & first.keys()
    assert later <= second.keys()
    assert set(found(run, second["cursor"])) == {"cursor", "run"}


def test_too_much_news_says_reload(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from webapp.metrics import selectors as metrics

    monkeypatch.setattr(metrics, "DELTA_LIMIT", 2)
    run = make_run(project)
    send(claimed(run), [scalars(i, a=float(i)) for i in range(1, 6)])
    news = found(run, 0)
    assert news["reload"] is True
    assert "series" not in news


def test_another_projects_run_is_not_found(cast: Cast, client_of: Callable[[str], Client]) -> None:
    theirs = make_run(cast.other_project)
    url = reverse("live:stream", args=(*cast.project.url_args, theirs.pk))
    assert client_of("owner").get(url).status_code == 404


@pytest.mark.django_db(transaction=True)
def test_a_browser_gets_what_it_misses_and_then_what_happens(cast: Cast) -> None:
    run = make_run(cast.project)
    held = claimed(run)
    cursor = send(held, [scalars(1, a=1.0)]).live_seq
    send(held, [scalars(2, a=2.0)])
    url = reverse("live:stream", args=(*cast.project.url_args, run.pk))

    async def browse() -> list[list[float]]:
        client = AsyncClient()
        await client.aforce_login(cast["viewer"])
        # A browser that comes back sends where it was, which counts more than the page's address.
        response = await client.get(url, {"cursor": "0"}, headers={"last-event-id": str(cursor)})
        assert response["Content-Type"] == "text/event-stream"
        parts = aiter(response)
        seen: list[list[float]] = []
        async for part in parts:
            for line in part.decode().splitlines():
                if line.startswith("data: "):
                    seen.append(json.loads(line.removeprefix("data: "))["series"][0]["y"])
            if len(seen) == 1 and not part.startswith(b":"):
                await asyncio.to_thread(_send_in_thread, held)
            if len(seen) == 2:
                break
        await parts.aclose()  # type: ignore[attr-defined]
        return seen

    assert asyncio.run(browse()) == [[2.0], [3.0]]


def _send_in_thread(held: Any) -> None:
    from django.db import connection

    try:
        send(held, [scalars(3, a=3.0)])
    finally:
        connection.close()
