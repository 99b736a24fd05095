"""The browser's side of uploads over HTTP: begun, sent in pieces, gone on with after a reload, checked by the server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.conftest import Cast
from tests.webapp.models import weights
from webapp.checkpoints.manifests import read_manifest
from webapp.checkpoints.models import Checkpoint, Upload

FILES = {"config.json": b"{}", "model.safetensors": weights(b"data" * 50)}


@pytest.fixture
def base(cast: Cast, client: Client, settings: Any, tmp_path: Path) -> str:
    settings.FILES_DIR = tmp_path
    client.force_login(cast["member"])
    return f"/p/{'/'.join(cast.project.url_args)}/checkpoints/upload"


def begin(client: Client, base: str, files: dict[str, bytes] = FILES, **more: Any) -> Any:
    body = {"name": "Mine", "files": {name: {"size": len(data)} for name, data in files.items()}} | more
    return client.post(f"{base}s/", json.dumps(body), content_type="application/json")


def send(client: Client, begun: Any, name: str, offset: int, data: bytes) -> Any:
    address = f"{begun.json()['piece']}?name={name}&offset={offset}"
    return client.post(address, data, content_type="application/octet-stream")


def test_in_pieces_over_a_reload_to_a_checkpoint(client: Client, base: str) -> None:
    data = FILES["model.safetensors"]
    begun = begin(client, base)
    assert (begun.status_code, begun.json()["offsets"]) == (201, {"config.json": 0, "model.safetensors": 0})
    assert send(client, begun, "model.safetensors", 0, data[:100]).json() == {"offset": 100}
    begun = begin(client, base, name="Called otherwise")
    assert begun.json()["offsets"] == {"config.json": 0, "model.safetensors": 100}
    wrong = send(client, begun, "model.safetensors", 0, data)
    assert (wrong.status_code, wrong.json()) == (409, {"offset": 100})
    assert send(client, begun, "model.safetensors", 100, data[100:]).json() == {"offset": len(data)}
    early = client.post(begun.json()["complete"])
    assert (early.status_code, early.json()) == (422, {"message": "config.json: 0 of 2 bytes have arrived."})
    assert "Begun and not finished" in client.get(base).content.decode()
    send(client, begun, "config.json", 0, b"{}")
    made = Checkpoint.objects.get() if client.post(begun.json()["complete"]).json() else None
    assert made is not None
    assert client.post(begun.json()["complete"]).json() == {"url": made.get_absolute_url()}
    # The hash that nobody announced was taken here, of what arrived.
    assert read_manifest(made.uri)[0].sha256 == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert made.name == "Mine"
    assert begin(client, base).json()["piece"] != begun.json()["piece"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("{", "This is no JSON"),
        ("[" * 50_000, "This is no JSON"),
        ('{"name": "a\\u0000b", "files": {"m.gguf": {"size": 1}}}', "holds a NUL or half a character"),
        ('{"name": "x", "files": {"m\\ud800.gguf": {"size": 1}}}', "holds a NUL or half a character"),
        ("[]", "Expected JSON with a name and files"),
        ('{"name": "x", "files": {"a": 1}}', "Expected JSON with a name and files"),
        ('{"name": "x", "files": {"pytorch_model.bin": {"size": 1}}}', "it may run code when it is opened"),
        ('{"name": " ", "files": {"m.gguf": {"size": 1}}}', "The model needs a name"),
        ('{"name": "x", "files": {"m.gguf": {"size": "1"}}}', "expected bytes, as a whole number"),
        ('{"name": "x", "files": {"m.gguf": {"size": 1, "sha256": ""}}}', "expected 64 hex digits"),
    ],
)
def test_what_cannot_be_begun_is_said(client: Client, base: str, body: str, said: str) -> None:
    answer = client.post(f"{base}s/", body, content_type="application/json")
    assert answer.status_code == 422
    assert said in answer.json()["message"]
    assert not Upload.objects.exists()


def test_a_form_is_no_announcement_and_no_piece(client: Client, base: str) -> None:
    answer = client.post(f"{base}s/", {"name": "x"})
    assert (answer.status_code, answer.json()["message"][:26]) == (422, "Expected application/json,")
    answer = client.post(f"{begin(client, base).json()['piece']}?name=config.json&offset=0", {"name": "x"})
    assert (answer.status_code, answer.json()["message"][:34]) == (422, "Expected application/octet-stream,")


def test_pieces_that_do_not_fit_are_refused(client: Client, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = begin(client, base)
    assert "more bytes came than the 2 announced" in send(client, begun, "config.json", 0, b"{} ").json()["message"]
    assert "was not announced" in send(client, begun, "other.json", 0, b"{}").json()["message"]
    assert "expected a number of bytes" in send(client, begun, "config.json", -1, b"{}").json()["message"]
    monkeypatch.setattr("webapp.core.bodies.PIECE", 1)
    assert "at most 1 bytes" in send(client, begun, "config.json", 0, b"{}").json()["message"]


def test_an_upload_is_its_persons_own_and_can_be_discarded(cast: Cast, client: Client, base: str) -> None:
    begun = begin(client, base)
    discard = begun.json()["piece"].replace("/piece", "/discard")
    other = Client()
    other.force_login(cast["owner"])
    assert send(other, begun, "config.json", 0, b"{}").status_code == 404
    assert other.post(begun.json()["complete"]).status_code == 404
    assert other.post(discard).status_code == 404
    assert client.post(discard).status_code == 302
    assert not Upload.objects.exists()


def test_without_the_forms_token_nothing_is_taken(cast: Cast, base: str) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(cast["member"])
    assert begin(strict, base).status_code == 403
    strict.get(base)
    token = strict.cookies["unsqueeze_csrf"].value
    body = json.dumps({"name": "x", "files": {"m.gguf": {"size": 4}}})
    begun = strict.post(f"{base}s/", body, content_type="application/json", headers={"X-CSRFToken": token})
    assert begun.status_code == 201
    address = f"{begun.json()['piece']}?name=m.gguf&offset=0"
    assert strict.post(address, b"GGUF", content_type="application/octet-stream").status_code == 403
    headers = {"X-CSRFToken": token}
    sent = strict.post(address, b"GGUF", content_type="application/octet-stream", headers=headers)
    assert sent.json() == {"offset": 4}
