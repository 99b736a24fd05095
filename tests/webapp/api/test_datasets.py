"""A dataset through the API alone: upload, look, import, read, archive, remove."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import Cast
from tests.webapp.api.calling import Caller, error
from tests.webapp.datasets.making import SUMS, make_version
from tests.webapp.making import make_run
from webapp.datasets.services import record_use
from webapp.launch.imports import run_waiting

OCTETS = {"Content-Type": "application/octet-stream"}
FILE = "".join(json.dumps(row) + "\n" for row in SUMS).encode()


@pytest.fixture
def caller(cast: Cast) -> Caller:
    return Caller(cast["member"])


@pytest.fixture
def job(caller: Caller) -> dict[str, Any]:
    dataset = caller.post("datasets", {"name": "Sums"}).json()
    response = caller("post", f"{dataset['url']}/uploads?filename=sums.jsonl", FILE, **OCTETS)
    assert response.status_code == 201
    found: dict[str, Any] = response.json()
    return found


def test_a_file_becomes_a_version_and_its_rows_are_read(caller: Caller, job: dict[str, Any]) -> None:
    assert (job["state"], job["size_bytes"]) == ("mapping", len(FILE))
    seen = caller.post(f"{job['url']}/inspect").json()
    assert (seen["format"], len(seen["rows"])) == ("gsm8k", 20)
    wrong = caller.post(f"{job['url']}/start", {"mapping": {"prompt": 3}})
    assert error(wrong) == (422, "unreadable_file")
    assert "mapping.prompt" in wrong.json()["error"]["message"]
    started = caller.post(f"{job['url']}/start", {"mapping": {**seen["recognised"], "suffix": " Think."}})
    assert started.json()["state"] == "queued"
    assert run_waiting() == 1
    done = caller.get(job["url"]).json()
    assert (done["state"], done["rows"]) == ("finished", 144)
    [version] = caller.get(f"datasets/{job['dataset']}/versions").json()["results"]
    assert (version["id"], version["number"], version["rows"]) == (done["version"], 1, 144)
    rows = caller.get(f"datasets/versions/{version['id']}/rows?line=1").json()
    assert [row["prompt"][0]["content"] for row in rows["rows"]] == ["0+0= Think."]
    report = caller.get(version["url"]).json()["report"]
    assert report["gold_check"]["failed"]["count"] == 0
    part = caller.get(f"{version['url']}/rows.parquet", Range="bytes=0-3")
    assert (part.status_code, b"".join(part.streaming_content)) == (206, b"PAR1")


def test_names_are_unique_and_empty_files_refused(caller: Caller, job: dict[str, Any]) -> None:
    assert error(caller.post("datasets", {"name": "Sums"})) == (400, "invalid")
    path = f"datasets/{job['dataset']}/uploads?filename=x.jsonl"
    assert error(caller("post", path, b"", **OCTETS)) == (400, "invalid")
    assert error(caller.post(path)) == (415, "unsupported_media_type")


def test_an_upload_is_discarded_with_its_dataset(caller: Caller, job: dict[str, Any]) -> None:
    assert caller("delete", job["url"]).status_code == 204
    assert caller.get("datasets").json()["results"] == []


def test_what_a_run_uses_stays(cast: Cast, caller: Caller) -> None:
    version = make_version(cast.project, SUMS[:20])
    run = make_run(cast.project)
    record_use(run=run, version=version)
    assert caller.get(f"datasets/versions/{version.pk}").json()["runs"] == [run.pk]
    for path in (f"datasets/versions/{version.pk}", f"datasets/{version.dataset_id}"):
        assert error(caller("delete", path)) == (409, "in_use")
    assert caller("patch", f"datasets/{version.dataset_id}", {"archived": True}).json()["archived"] is True
    assert caller.get("datasets").json()["results"] == []
    assert [one["name"] for one in caller.get("datasets?archived=true").json()["results"]] == ["Sums"]
    run.delete()
    assert caller("delete", f"datasets/{version.dataset_id}").status_code == 204
