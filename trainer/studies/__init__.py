"""The studies that come with the product: ``<slug>.json`` each, and what came out in ``results/<slug>.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainer.contract.study import Study

FOLDER = Path(__file__).parent
ASSETS = FOLDER.parent / "assets"


def study_slugs() -> list[str]:
    """What there is, in order of name."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load_study(slug: str) -> Study:
    """The study of this slug. Raises KeyError for an unknown one, pydantic's ValidationError for a wrong file."""
    if slug not in study_slugs():
        raise KeyError(slug)
    return Study.model_validate_json((FOLDER / f"{slug}.json").read_text(encoding="utf-8"))


def committed_results(slug: str) -> dict[str, Any] | None:
    """The results that were committed with the product; None for a study that has not been run."""
    path = FOLDER / "results" / f"{slug}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
