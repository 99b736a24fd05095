"""Studies over the API: what the pages do, as JSON."""

from __future__ import annotations

import pytest

from tests.conftest import Cast
from tests.webapp.api.calling import Caller, error
from webapp.runs.models import Run
from webapp.studies.models import Study

pytestmark = pytest.mark.django_db


@pytest.fixture
def caller(cast: Cast) -> Caller:
    return Caller(cast["member"])


def test_a_study_is_launched_looked_at_and_stopped(caller: Caller) -> None:
    made = caller.post("studies", {"study": "sps", "form": "quick"})
    assert made.status_code == 201
    found = caller.get(f"studies/{made.json()['id']}").json()
    assert found["findings"]["verdict"] == "not run yet"
    assert [(m["part"], m["seed"]) for m in found["members"]][:2] == [("measure", None), ("train", 0)]
    assert len(found["members"]) == Run.objects.count() == 19
    assert [one["slug"] for one in caller.get("studies").json()["results"]] == ["sps"]
    stopped = caller.post(f"studies/{found['id']}/stop").json()
    assert {m["state"] for m in stopped["members"]} == {"cancelled"}
    assert stopped["open"] is False


def test_an_unknown_study_and_form_are_refused_with_what_is_known(caller: Caller) -> None:
    refused = caller.post("studies", {"study": "nothing", "form": "quick"})
    assert error(refused)[0] == 400
    assert "is none of" in refused.content.decode()
    assert error(caller.post("studies", {"study": "sps", "form": "large"}))[0] == 400
    assert error(caller.get("studies/999"))[0] == 404
    assert not Study.objects.exists()


def test_the_library_tells_each_verdict(caller: Caller) -> None:
    rows = {row["slug"]: row for row in caller.get("/api/v1/library/methods").json()["methods"]}
    assert rows["sps"]["study"] == "not seen"
