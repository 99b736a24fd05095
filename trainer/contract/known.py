"""Evaluations that are known already, as a file: equal weights on an equal set are not measured twice.

Whoever launches an attempt may put one into its folder, and a run keeps such files of its own. A reader trusts none of
it: an evaluation counts only if its fingerprint and its set agree with what is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from trainer.contract.events import Evaluation, Source
from trainer.contract.files import write_whole
from trainer.contract.versions import KNOWN, UnreadableVersion

KNOWN_FILE = "known_evaluations.json"


class KnownEvaluation(BaseModel):
    """An evaluation event, without its set, and where it was measured."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: Source
    evaluation: Evaluation


def write_known(path: Path, entries: Sequence[KnownEvaluation], *, redact: Callable[[str], str] = str) -> None:
    """Writes the file in one step, its JSON as ``redact`` leaves it."""
    document = {"schema_version": KNOWN.current, "evaluations": [entry.model_dump(mode="json") for entry in entries]}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, redact(json.dumps(document)))


def read_known(path: Path) -> tuple[list[KnownEvaluation], list[str]]:
    """(the file's entries, what could not be read of it). A missing file has neither."""
    try:
        document = KNOWN.migrate(json.loads(path.read_text()))
        rows = list(document["evaluations"])
    except FileNotFoundError:
        return [], []
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError, UnreadableVersion) as error:
        return [], [f"{path.name} cannot be read: {error}"]
    entries, faults = [], []
    for number, row in enumerate(rows, start=1):
        try:
            entries.append(KnownEvaluation.model_validate(row))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            faults.append(f"entry {number} of {path.name} is no evaluation: {place}: {first['msg']}")
    return entries, faults
