"""Old documents are migrated step by step, newer ones are refused with the release that reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainer.contract import events as ev
from trainer.contract.config import InvalidConfig, parse_config
from trainer.contract.versions import EVENT, SCHEMAS, Schema, UnreadableVersion
from trainer.methods import resolve

FIRST = Path(__file__).parents[1] / "fixtures/first-release"


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_every_older_version_has_a_step_to_the_next(schema: Schema) -> None:
    assert sorted(schema.steps) == list(range(1, schema.current))


def test_steps_are_taken_one_after_the_other_and_the_original_stays() -> None:
    schema = Schema("thing", 3)
    schema.step(1)(lambda d: {**d, "b": d["a"] + 1})
    schema.step(2)(lambda d: {"schema_version": d["schema_version"], "c": d["a"] + d["b"]})
    old = {"schema_version": 1, "a": 1}
    assert schema.migrate(old) == {"schema_version": 3, "c": 3}
    assert schema.migrate({"schema_version": 2, "a": 5, "b": 5}) == {"schema_version": 3, "c": 10}
    assert schema.migrate({"c": 7}) == {"c": 7}
    assert old == {"schema_version": 1, "a": 1}


@pytest.mark.parametrize("version", [0, -1, "1", 1.0, True, None])
def test_what_is_no_version_is_refused(version: object) -> None:
    with pytest.raises(UnreadableVersion, match="whole number from 1 to 2"):
        EVENT.migrate({"v": version})


def test_a_newer_document_is_refused_with_the_release_that_wrote_it() -> None:
    with pytest.raises(
        UnreadableVersion, match=r"version 9; Unsqueeze .* reads versions up to 2. Use Unsqueeze 4\.1, "
    ):
        EVENT.migrate({"v": 9, "release": "4.1"})
    with pytest.raises(InvalidConfig, match=r"schema_version: this configuration has version 5.*that wrote it"):
        parse_config({"kind": "rl", "schema_version": 5})


def test_every_event_of_the_first_release_is_read() -> None:
    lines = (FIRST / "attempts/1/events.jsonl").read_text().splitlines()
    assert {json.loads(line)["v"] for line in lines} == {1}
    events = [ev.parse_line(line).event for line in lines]
    assert len(events) == 36
    assert not [event for event in events if isinstance(event, ev.Opaque)]
    first, _second = (event for event in events if isinstance(event, ev.Evaluation))
    assert (first.engine, first.seed, first.reused) == ("torch", None, None)
    reused = json.loads(next(line for line in lines if '"kind":"evaluation"' in line))
    reused["event"]["reused"] = True
    assert ev.parse_line(json.dumps(reused)).event.reused == ev.Source(run="", attempt=0, iteration=0)


def test_a_configuration_of_the_first_release_resolves_to_itself() -> None:
    document = json.loads((FIRST / "config.json").read_text())
    resolved = resolve(document).model_dump(mode="json")
    assert kept(resolved, document) == document


def kept(found: Any, old: Any) -> Any:
    """The part of ``found`` that an older document has, which knows none of the settings that came later."""
    if isinstance(old, dict):
        return {key: kept(found[key], value) for key, value in old.items()}
    if isinstance(old, list) and len(found) == len(old):
        return [kept(new, value) for new, value in zip(found, old, strict=True)]
    return found
