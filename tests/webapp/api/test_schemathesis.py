"""Schemathesis: requests made up from docs/openapi.yaml, right and wrong ones, against the application and its database.

Every default check is on. What is left out has its reason beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import yaml
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from hypothesis import HealthCheck, settings
from schemathesis.config import SchemathesisConfig
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks

from tests.conftest import Cast
from tests.webapp.datasets.making import bare_version
from tests.webapp.making import claimed, evaluation, make_run, scalars, send
from tests.webapp.models import model_folder
from webapp.accounts.models import Scope
from webapp.accounts.services import create_token
from webapp.checkpoints.importing import import_checkpoint
from webapp.checkpoints.uploading import start
from webapp.config.wsgi import application

pytestmark = [pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
SEED = 20261130
TRIED = SchemathesisConfig.from_dict(
    {
        # Bounded; the same requests every time.
        "seed": SEED,
        # Free-form objects cannot say that no text holds NUL; `test_errors.py` sends some.
        "generation": {"max-examples": 3, "deterministic": True, "database": "none", "allow-x00": False},
        # Of the methods that an address does not have, one stands for all.
        "phases": {"coverage": {"unexpected-methods": ["QUERY"]}},
    }
)
# Who has not signed in gets the same answer to everything: few requests, without those for each edge of each field.
CLOSED = SchemathesisConfig.from_dict(
    {
        "seed": SEED,
        "generation": {"max-examples": 2, "deterministic": True, "database": "none"},
        "phases": {"coverage": {"enabled": False}},
    }
)
raw = yaml.safe_load((ROOT / "docs" / "openapi.yaml").read_text())
# Every combination of a configuration's settings would be tried, which takes hours; its fields are the trainer's own, and
# `tests/trainer/contract` tries those. Here a configuration is any object.
raw["components"]["schemas"]["LaunchDocument"] = {"type": "object"}


def _described(config: SchemathesisConfig) -> Any:
    found = schemathesis.openapi.from_dict(raw, config=config)
    found.app = application
    # A stream has no end, and needs an ASGI server: `test_streams.py` reads it.
    return found.exclude(operation_id="streamRun")


# Schemas cannot say everything: a configuration's cross-field rules, how a mapping fits a file, what an event is, which
# files make a model, where models lie, which names are taken, which studies there are, what an e-mail address is. Of these
# a request that fits the schema may be refused.
MEANING = frozenset(
    {
        "launchRun", "validateRun", "copyRun", "sendEvents", "createProject", "createDataset", "startUpload",
        "importCheckpoint", "addMember", "setSecret", "launchStudy",
    }
)  # fmt: skip


@schemathesis.serializer("application/x-ndjson")
def _lines(context: Any, value: Any) -> bytes:
    return str(value).encode(errors="replace")


@pytest.fixture
def place(cast: Cast, tmp_path: Path) -> dict[str, Any]:
    """What there is to find: a run with points and an evaluation, a dataset, a checkpoint, an upload."""
    run = make_run(cast.project, user=cast["member"])
    send(claimed(run), [scalars(i, reward=float(i)) for i in range(1, 4)])
    version = bare_version(cast.project)
    checkpoint = import_checkpoint(project=cast.project, folder=model_folder(tmp_path / "m"), name="base")
    files = {name: {"size": 2, "sha256": "0" * 64} for name in ("config.json", "model.safetensors")}
    return {
        "team": "lab",
        "project": "countdown",
        "run": run.pk,
        "membership": cast.team.memberships.get(user=cast["viewer"]).pk,
        "evaluation": evaluation(run, 1, [(4, 2)] * 5).pk,
        "dataset": version.dataset_id,
        "version": version.pk,
        "checkpoint": checkpoint.pk,
        "upload": start(project=cast.project, user=cast["member"], name="m", files=files).pk,
    }


@pytest.fixture
def secret(cast: Cast) -> str:
    return create_token(user=cast["owner"], name="t", scopes=Scope.values)[1]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schemathesis tries refused tokens by the hundred."""
    monkeypatch.setattr("webapp.accounts.selectors.LIMIT_TOKENS_OF_ADDRESS", 10**6)
    monkeypatch.setattr("webapp.accounts.selectors.LIMIT_ONE_TOKEN", 10**6)


@pytest.fixture(autouse=True)
def _one_connection() -> Iterator[None]:
    """As Django's own test client does: the end of a request must not close the connection of the test's transaction."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


BOUNDS = settings(suppress_health_check=list(HealthCheck), deadline=None)


@_described(TRIED).parametrize()
@BOUNDS
def test_an_owner_gets_what_is_described(case: Any, place: dict[str, Any], secret: str) -> None:
    if case.meta is None or case.meta.generation.mode is GenerationMode.POSITIVE:
        # Of made-up names next to nothing would be found, a cursor or an ETag that is made up is none, and a made-up range
        # lies outside a small file.
        case.query.pop("cursor", None)
        for name in ("If-Match", "Range"):
            case.headers.pop(name, None)
        case.path_parameters.update({name: place[name] for name in case.path_parameters if name in place})
    left_out = [checks.positive_data_acceptance] if case.operation.definition.raw["operationId"] in MEANING else []
    case.call_and_validate(headers={"Authorization": f"Bearer {secret}"}, excluded_checks=left_out)


@_described(CLOSED).parametrize()
@BOUNDS
def test_without_signing_in_nothing_opens(case: Any, place: dict[str, Any]) -> None:
    case.path_parameters.update({name: place[name] for name in case.path_parameters if name in place})
    response = case.call()
    case.validate_response(response, excluded_checks=[checks.positive_data_acceptance, checks.negative_data_rejection])
    assert response.status_code in (400, 401, 404, 405, 415)
