"""Requests that are sent twice, and lists that grow while they are read."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from tests.conftest import Cast
from tests.webapp.api.calling import BASE, Caller, error
from tests.webapp.making import claimed, document, make_run, scalars, send
from webapp.api.models import Answer
from webapp.runs.models import Attempt, Run

KEY = {"Idempotency-Key": "first"}


def test_a_launch_that_is_sent_twice_is_one(cast: Cast) -> None:
    caller = Caller(cast["member"])
    first = caller.post("runs", {"config": document()}, **KEY)
    again = caller.post("runs", {"config": document()}, **KEY)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert "Idempotency-Replayed" not in first
    assert again["Idempotency-Replayed"] == "true"
    assert Run.objects.count() == 1


def test_a_key_is_for_one_request_of_one_person(cast: Cast) -> None:
    caller = Caller(cast["member"])
    caller.post("runs", {"config": document()}, **KEY)
    assert error(caller.post("runs", {"config": document(seed=1)}, **KEY)) == (422, "key_reused")
    run = Run.objects.get()
    assert error(caller.post(f"runs/{run.pk}/stop", **KEY)) == (422, "key_reused")
    assert Caller(cast["owner"]).post("runs", {"config": document()}, **KEY).status_code == 201
    assert Run.objects.count() == 2


def test_the_order_of_fields_makes_no_other_request(cast: Cast) -> None:
    caller = Caller(cast["member"])
    caller.post("runs", {"name": "a", "config": document()}, **KEY)
    assert caller.post("runs", {"config": document(), "name": "a"}, **KEY).status_code == 201
    assert Run.objects.count() == 1


def test_a_refusal_leaves_the_key_free(cast: Cast) -> None:
    caller = Caller(cast["member"])
    assert error(caller.post("runs", {"config": {}}, **KEY)) == (422, "invalid_config")
    assert Answer.objects.count() == 0
    assert caller.post("runs", {"config": document()}, **KEY).status_code == 201


def test_after_a_day_a_key_is_forgotten(cast: Cast) -> None:
    caller = Caller(cast["member"])
    caller.post("runs", {"config": document()}, **KEY)
    Answer.objects.update(created_at=timezone.now() - timedelta(hours=25))
    assert "Idempotency-Replayed" not in caller.post("runs", {"config": document()}, **KEY)
    assert (Run.objects.count(), Answer.objects.count()) == (2, 1)


@pytest.mark.parametrize("key", ["", "x" * 201, "ü"])
def test_a_key_that_is_none(key: str, cast: Cast) -> None:
    response = Caller(cast["member"]).post("runs", {"config": document()}, **{"Idempotency-Key": key})
    assert error(response) == (400, "invalid")
    assert Run.objects.count() == 0


def test_resuming_twice_makes_one_attempt(cast: Cast) -> None:
    caller = Caller(cast["member"])
    run = make_run(cast.project)
    assert caller.post(f"runs/{run.pk}/stop").json()["state"] == "cancelled"
    assert caller.post(f"runs/{run.pk}/resume", **KEY).json()["attempt"] == 2
    assert caller.post(f"runs/{run.pk}/resume", **KEY).json()["attempt"] == 2
    assert Attempt.objects.filter(run=run).count() == 2


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_of_launches_at_the_same_time_one_acts(cast: Cast) -> None:
    callers = [Caller(cast["member"]) for _ in range(4)]
    together = threading.Barrier(len(callers))
    answers: list[Any] = []

    def launch(caller: Caller) -> None:
        together.wait(20)
        try:
            answers.append(caller.post("runs", {"config": document()}, **KEY))
        finally:
            connection.close()

    threads = [threading.Thread(target=launch, args=(caller,)) for caller in callers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [answer.status_code for answer in answers] == [201] * 4
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("Idempotency-Replayed" in answer for answer in answers) == 3
    assert Run.objects.count() == 1


# Two people at one run


def test_what_somebody_else_wrote_meanwhile_is_not_overwritten(cast: Cast) -> None:
    mine, theirs = Caller(cast["member"]), Caller(cast["owner"])
    run = make_run(cast.project)
    seen = mine.get(f"runs/{run.pk}")["ETag"]
    # Progress is not what people write.
    send(claimed(run), [scalars(1, reward=1.0)])
    assert mine.get(f"runs/{run.pk}")["ETag"] == seen
    newer = theirs("patch", f"runs/{run.pk}", {"notes": "theirs"}, **{"If-Match": seen})["ETag"]
    refused = mine("patch", f"runs/{run.pk}", {"notes": "mine", "auto_resume": 0}, **{"If-Match": seen})
    assert error(refused) == (412, "changed")
    assert refused.json()["error"]["details"] == {"etag": newer}
    run.refresh_from_db()
    assert (run.notes, run.auto_resume) == ("theirs", None)
    for given in ("no etag", f"W/{newer}"):
        assert error(mine("patch", f"runs/{run.pk}", {"notes": "x"}, **{"If-Match": given})) == (412, "changed")
    for given in (f'"other", {newer}', "*"):
        assert mine("patch", f"runs/{run.pk}", {"notes": "theirs"}, **{"If-Match": given}).status_code == 200
    assert mine("patch", f"runs/{run.pk}", {"notes": "without asking"}).json()["notes"] == "without asking"


# Pages


def _pages(caller: Caller, path: str, grow: Any = lambda: None) -> list[list[Any]]:
    found, cursor = [], None
    while True:
        body = caller.get(path + (f"&cursor={cursor}" if cursor else "")).json()
        found.append(body["results"])
        cursor = body["next_cursor"]
        if cursor is None:
            return found
        grow()


def test_pages_skip_and_repeat_nothing_while_runs_are_launched(cast: Cast) -> None:
    caller = Caller(cast["member"])
    old = [make_run(cast.project, name=f"{i}").pk for i in range(7)]
    pages = _pages(caller, "runs?limit=3", grow=lambda: make_run(cast.project))
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [row["id"] for page in pages for row in page] == old[::-1]


@pytest.mark.parametrize("order", ["name", "-name", "state", "-state", "started", "-started", "task", "created"])
def test_every_order_reaches_every_run_once(order: str, cast: Cast) -> None:
    caller = Caller(cast["member"])
    now = timezone.now()
    for i in range(9):
        run = make_run(cast.project, name="abc"[i % 3])
        # A third has not been started, and some were at the same moment.
        Run.objects.filter(pk=run.pk).update(started_at=now + timedelta(hours=i // 4) if i % 3 else None)
    rows = [row for page in _pages(caller, f"runs?limit=2&order={order}") for row in page]
    assert len({row["id"] for row in rows}) == len(rows) == 9
    column = {"created": "created_at", "started": "started_at"}.get(order.lstrip("-"), order.lstrip("-"))
    values = [row[column] for row in rows]
    known = [value for value in values if value is not None]
    assert values == [*sorted(known, reverse=order.startswith("-")), *[None] * (9 - len(known))]


def test_a_cursor_belongs_to_its_list_and_order(cast: Cast) -> None:
    caller = Caller(cast["member"])
    run = make_run(cast.project)
    make_run(cast.project)
    cursor = caller.get("runs?limit=1").json()["next_cursor"]
    assert caller.get(f"runs?cursor={cursor}").status_code == 200
    for path in (
        f"runs?order=name&cursor={cursor}",
        f"runs/{run.pk}/attempts?cursor={cursor}",
        f"runs?cursor={cursor}x",
    ):
        assert error(caller.get(path)) == (400, "invalid_cursor")


def test_filters(cast: Cast) -> None:
    caller = Caller(cast["member"])
    a = caller.post("runs", {"config": document(), "name": "first", "tags": ["x", "y"]}).json()["id"]
    b = caller.post("runs", {"config": document(methods=[{"slug": "sps"}]), "name": "second"}).json()["id"]
    caller.post(f"runs/{b}/stop")

    def ids(query: str) -> set[str]:
        return {row["id"] for row in caller.get(f"runs?{query}").json()["results"]}

    assert ids("tag=x") == ids("state=queued") == ids("state=active") == ids("search=first") == {a}
    assert ids("method=sps") == ids("state=over") == ids("state=cancelled") == {b}
    assert ids("kind=rl") == ids("") == {a, b}
    assert ids("kind=sft") == set()
    assert f"{BASE}/projects/lab/countdown/runs/{a}" == caller.get(f"runs/{a}").json()["url"]
