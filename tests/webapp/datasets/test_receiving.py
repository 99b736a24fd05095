"""A dataset's file in pieces: a break costs nothing that has arrived."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.conftest import Cast
from tests.webapp.datasets.making import SUMS, make_version
from webapp.datasets import receiving, services
from webapp.datasets.models import Dataset, Import
from webapp.datasets.tool import inspect
from webapp.files.owners import Owners
from webapp.files.units import everything
from webapp.projects.models import Project
from webapp.runs import storage

BODY = "".join(json.dumps(row) + "\n" for row in SUMS).encode()
Clients = Callable[[str], Client]


def begin(client: Client, project: Project, *, name: str = "Sums", dataset: int | None = None, **file: Any) -> Any:
    route = "datasets:begin-version" if dataset else "datasets:begin"
    at = reverse(route, args=(*project.url_args, *([dataset] if dataset else [])))
    files = {file.get("called", "sums.jsonl"): {"size": file.get("size", len(BODY))}}
    return client.post(at, json.dumps({"name": name, "files": files}), content_type="application/json")


def send(client: Client, begun: Any, offset: int, data: bytes) -> Any:
    return client.post(f"{begun['piece']}?offset={offset}", data, content_type="application/octet-stream")


def test_a_file_arrives_over_a_break_and_waits_for_its_mapping(cast: Cast, client_of: Clients) -> None:
    member = client_of("member")
    first = begin(member, cast.project).json()
    assert send(member, first, 0, BODY[:1000]).json() == {"offset": 1000}
    wrong = send(member, first, 500, BODY[500:])
    assert (wrong.status_code, wrong.json()) == (409, {"offset": 1000})
    short = member.post(first["complete"])
    assert (short.status_code, short.json()["message"]) == (422, f"1000 of {len(BODY)} bytes have arrived.")

    again = begin(member, cast.project).json()
    assert again == {**first, "offsets": {"sums.jsonl": 1000}}
    job = Import.objects.get()
    assert "1000\xa0bytes of" in member.get(job.get_absolute_url()).content.decode()
    assert send(member, again, 1000, BODY[1000:]).json() == {"offset": len(BODY)}
    done = member.post(again["complete"]).json()
    assert member.post(again["complete"]).json() == done
    job.refresh_from_db()
    assert done["url"] == job.get_absolute_url() == reverse("datasets:mapping", args=job.url_args)
    assert inspect(storage.fetch(job.uri), job.filename)["title"] == "GSM8K"
    assert not services.part_of(job).exists()
    assert send(member, again, len(BODY), b"x").status_code == 422


def test_another_version_goes_into_its_dataset(cast: Cast, client_of: Clients) -> None:
    version = make_version(cast.project)
    member = client_of("member")
    taken = begin(member, cast.project, name=version.dataset.name)
    assert taken.status_code == 422
    assert "has a dataset with this name already" in taken.json()["message"]
    assert begin(member, cast.project, dataset=version.dataset_id).status_code == 201
    assert begin(member, cast.project, dataset=version.dataset_id).status_code == 201
    assert version.dataset.imports.filter(state="receiving").count() == 1


@pytest.mark.parametrize(
    ("file", "said"),
    [({"size": 0}, "at least one"), ({"size": "5"}, "at least one"), ({"size": 10**15}, "UNSQUEEZE_UPLOAD_GB")],
)
def test_what_cannot_be_taken_is_refused_before_anything_is_made(
    file: dict[str, Any], said: str, cast: Cast, client_of: Clients
) -> None:
    answer = begin(client_of("member"), cast.project, **file)
    assert answer.status_code == 422
    assert said in answer.json()["message"]
    assert not Dataset.objects.exists()


def test_more_than_announced_and_other_peoples_uploads_are_refused(cast: Cast, client_of: Clients) -> None:
    member = client_of("member")
    begun = begin(member, cast.project, size=10).json()
    assert send(member, begun, 0, b"x" * 11).status_code == 422
    assert send(client_of("owner"), begun, 0, b"x").status_code == 404
    assert client_of("owner").post(begun["complete"]).status_code == 404


def test_what_has_arrived_is_nobodys_orphan_and_goes_when_given_up(cast: Cast, client_of: Clients) -> None:
    member = client_of("member")
    begun = begin(member, cast.project).json()
    send(member, begun, 0, BODY[:10])
    job = Import.objects.get()
    part = services.part_of(job)
    units = everything()
    assert f"{job.uri}.part" in units
    owners = Owners.read(units)
    assert owners.judge(units[f"{job.uri}.part"]) is None

    assert receiving.remove_expired() == 0
    old = time.time() - receiving.KEPT_FOR.total_seconds() - 60
    os.utime(part, (old, old))
    assert receiving.remove_expired() == 1
    assert not part.exists()
    assert not Dataset.objects.exists()
