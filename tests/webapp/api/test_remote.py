"""A trainer elsewhere: claims, events with gaps and repeats, fences."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Cast
from tests.webapp.api.calling import Caller, error
from tests.webapp.making import lines, make_run, scalars
from trainer.contract import events as ev
from webapp.metrics.selectors import series_of
from webapp.runs.models import Run
from webapp.runs.states import RunState

NDJSON = "application/x-ndjson"


class Trainer:
    """What runs elsewhere: it knows its claim and sends lines."""

    def __init__(self, caller: Caller, run: Run) -> None:
        self.caller, self.run = caller, run
        answer = caller.post(f"runs/{run.pk}/claim", {"worker": "far"})
        assert answer.status_code == 201
        self.number, self.claim = answer.json()["attempt"], answer.json()["claim"]

    def post(self, what: str, body: Any = None, **headers: str) -> Any:
        path = f"runs/{self.run.pk}/attempts/{self.number}/{what}"
        return self.caller.post(path, body, **{"X-Claim": self.claim, **headers})

    def send(self, events: list[ev.Event], *, first: int, attempt: int | None = None) -> Any:
        data = lines(self.run.pk, events, attempt=attempt or self.number, first_seq=first)
        return self.post("events", data, **{"Content-Type": NDJSON})


@pytest.fixture
def caller(cast: Cast) -> Caller:
    return Caller(cast["member"])


@pytest.fixture
def trainer(cast: Cast, caller: Caller) -> Trainer:
    return Trainer(caller, make_run(cast.project))


def test_one_of_several_gets_the_attempt(trainer: Trainer, caller: Caller) -> None:
    assert error(caller.post(f"runs/{trainer.run.pk}/claim", {"worker": "late"})) == (409, "bad_transition")
    assert trainer.post("heartbeat").json()["stop"] is False


def test_sending_again_changes_nothing(trainer: Trainer) -> None:
    first = [ev.State(state="running"), scalars(1, reward=0.5)]
    assert trainer.send(first, first=1).json() == {"accepted_through": {"trainer": 2}}
    # The answer was lost: all of it again, with one more.
    again = trainer.send([*first, scalars(2, reward=0.75)], first=1)
    assert again.json() == {"accepted_through": {"trainer": 3}}
    found = trainer.caller.get(f"runs/{trainer.run.pk}/points?key=reward").json()
    assert found["series"][0]["y"] == [0.5, 0.75]
    assert Run.objects.get(pk=trainer.run.pk).state == RunState.RUNNING


def test_a_gap_is_refused_whole_and_says_where_to_go_on(trainer: Trainer) -> None:
    trainer.send([scalars(1, reward=0.5)], first=1)
    response = trainer.send([scalars(2, reward=1.0), scalars(3, reward=1.0)], first=3)
    assert error(response) == (409, "event_gap")
    assert response.json()["error"]["details"] == {"writer": "trainer", "accepted_through": 1}
    assert trainer.caller.get(f"runs/{trainer.run.pk}/points?key=reward").json()["series"][0]["y"] == [0.5]


def test_a_line_that_is_no_event_is_named_and_nothing_is_stored(trainer: Trainer) -> None:
    data = lines(trainer.run.pk, [scalars(1, reward=0.5)]) + b'{"seq": 2}\n'
    response = trainer.post("events", data, **{"Content-Type": NDJSON})
    assert error(response) == (400, "invalid")
    assert response.json()["error"]["fields"][0]["path"] == "line 2"
    assert not series_of(trainer.run).exists()


def test_events_of_another_attempt_are_refused(trainer: Trainer) -> None:
    response = trainer.send([scalars(1, reward=0.5)], first=1, attempt=2)
    assert error(response) == (400, "invalid")
    assert "attempt 2; expected" in response.json()["error"]["fields"][0]["message"]


def test_a_wrong_claim_and_a_superseded_attempt_store_nothing(trainer: Trainer) -> None:
    wrong = trainer.post(
        "events", lines(trainer.run.pk, [scalars(1, a=1.0)]), **{"Content-Type": NDJSON, "X-Claim": "x"}
    )
    assert error(wrong) == (409, "claim_lost")
    assert trainer.post("end", {"state": "stopped"}).json()["state"] == "stopped"
    assert trainer.caller.post(f"runs/{trainer.run.pk}/resume").status_code == 200
    later = Trainer(trainer.caller, trainer.run)
    assert later.number == 2
    for late in (
        trainer.send([scalars(1, a=1.0)], first=1),
        trainer.post("heartbeat"),
        trainer.post("end", {"state": "failed"}),
    ):
        assert error(late) == (409, "claim_lost")
    assert not series_of(trainer.run).exists()
    assert later.send([scalars(1, a=2.0)], first=1).json() == {"accepted_through": {"trainer": 1}}


def test_a_person_s_stop_reaches_the_trainer(trainer: Trainer) -> None:
    trainer.send([ev.State(state="running")], first=1)
    assert trainer.caller.post(f"runs/{trainer.run.pk}/stop").status_code == 200
    assert trainer.post("heartbeat").json()["stop"] is True
    ended = trainer.post("end", {"state": "stopped", "message": "Saved."}).json()
    assert (ended["state"], ended["message"]) == ("stopped", "Saved.")
