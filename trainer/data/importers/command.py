"""``python -m trainer dataset inspect|import``: JSON lines on standard output, the last one is the result."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainer.contract.config import problems_of
from trainer.contract.dataset import Mapping
from trainer.contract.exit_codes import ExitCode
from trainer.core.errors import DatasetError
from trainer.data.importers.report import json_text

PROGRESS_SECONDS = 0.5


def run(arguments: argparse.Namespace) -> int:
    """Exit code of one command. What is wrong with the file or the mapping is printed as {"error": text}."""
    try:
        mapping = _mapping(arguments.mapping)
        name = arguments.name or arguments.source.name
        if arguments.what == "inspect":
            _say(_inspected(arguments.source, name, mapping))
        else:
            _import(arguments, name, mapping)
    except DatasetError as error:
        _say({"error": str(error)})
        return ExitCode.CONFIG
    except OSError as error:
        _say({"error": f"{error.strerror or error}: {error.filename or arguments.source}"})
        return ExitCode.STORAGE
    return ExitCode.FINISHED


def _inspected(source: Path, name: str, mapping: Mapping | None) -> dict[str, Any]:
    from trainer.data.importers.imports import inspect

    with tempfile.TemporaryDirectory(prefix="unsqueeze-dataset-") as scratch:
        return inspect(source, name, scratch=Path(scratch), mapping=mapping)


def _import(arguments: argparse.Namespace, name: str, mapping: Mapping | None) -> None:
    from trainer.data.importers.imports import import_file

    if mapping is None:
        mapping = Mapping.model_validate(_inspected(arguments.source, name, None)["recognised"])
    others = json.loads(arguments.others.read_text()) if arguments.others else []
    others = [{**one, "path": Path(one["path"])} for one in others]
    said = 0.0

    def progress(rows: int, share: float) -> None:
        nonlocal said
        if time.monotonic() - said > PROGRESS_SECONDS or share == 1.0:
            said = time.monotonic()
            _say({"rows": rows, "share": round(share, 4)})

    _say({"rows": 0, "share": 0.0})
    report = import_file(arguments.source, name, out=arguments.out, mapping=mapping, others=others, progress=progress)
    summary = ("content_hash", "sha256", "bytes", "rows", "splits", "seconds")
    _say({"done": {key: report[key] for key in summary}})


def _mapping(path: Path | None) -> Mapping | None:
    if path is None:
        return None
    try:
        return Mapping.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise DatasetError("; ".join(str(p) for p in problems_of(error, Mapping, prefix="mapping"))) from error
    except ValueError as error:
        raise DatasetError(f"{path.name} is no JSON: {error}") from error


def _say(line: dict[str, Any]) -> None:
    # A broken pipe ends the import: whoever started it is gone.
    sys.stdout.write(json_text(line) + "\n")
    sys.stdout.flush()
