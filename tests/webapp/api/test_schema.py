"""docs/openapi.yaml is what the code says, and the code says everything."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from django.test import Client

from tests.conftest import Cast
from tests.webapp.api.calling import BASE, Caller
from tests.webapp.permissions.api_table import API_TABLE
from webapp.api.errors import CODES
from webapp.api.openapi import schema, schema_text

ROOT = Path(__file__).resolve().parents[3]
KEPT = ROOT / "docs" / "openapi.yaml"


def _operations() -> dict[str, dict[str, Any]]:
    return {one["operationId"]: one for ways in schema()["paths"].values() for one in ways.values()}


def test_the_kept_description_is_that_of_the_code() -> None:
    assert KEPT.read_text() == schema_text(), "if the change is meant: make openapi"


def test_every_operation_is_described_and_in_the_permission_table() -> None:
    operations = _operations()
    assert all(one["summary"] and one["description"] and one["tags"] for one in operations.values())
    rows = [row for row in API_TABLE if row.column.statuses["anonymous"] == 401]
    assert len(operations) == len({(row.route, row.method) for row in rows}) == 93


def test_every_error_of_an_operation_has_the_one_shape() -> None:
    for code, response in schema()["components"]["responses"].items():
        assert response["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Error"}, code
        named = set(re.findall(r"`(\w+)`", response["description"]))
        assert named == {name for name, (status, _) in CODES.items() if f"Error{status}" == code}


def test_the_configuration_is_described_by_the_trainers_own_classes() -> None:
    schemas = schema()["components"]["schemas"]
    launch = schemas["LaunchBodyRequest"]["properties"]["config"]
    assert launch["$ref"] == "#/components/schemas/LaunchDocument"
    assert schemas["BudgetSection"]["properties"]["iterations"]["minimum"] == 1
    assert schemas["RlConfig"]["required"] == ["kind", "policy"]


def test_the_server_gives_its_description(cast: Cast) -> None:
    response = Caller(cast["viewer"]).get(f"{BASE}/schema")
    assert yaml.safe_load(response.content)["info"]["title"] == "Unsqueeze"


def test_the_page_lists_every_operation(cast: Cast, client: Client) -> None:
    client.force_login(cast["viewer"])
    text = client.get(f"{BASE}/docs").content.decode()
    assert all(f'id="{name}"' in text for name in _operations())
