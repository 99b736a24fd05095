"""Dataset versions in launch documents: which one is meant, and whether the run can use it, before a worker takes it."""

import json
from typing import Any

from trainer.contract.config import InvalidConfig, Problem
from trainer.data.alphabet import ALPHABET
from webapp.datasets.models import Version
from webapp.datasets.selectors import version_of, version_with_content
from webapp.projects.models import Project
from webapp.runs import storage
from webapp.runs.models import Run

TASK = "dataset"
SETTINGS = {"train": "task.problems", "validation": "evaluation.problems", "test": "evaluation.final_problems"}
SHOWN = 10


def with_dataset(project: Project, config: dict[str, Any]) -> tuple[dict[str, Any], Version | None]:
    """A resolved configuration with the version's file and hash filled in, and the version; unchanged and None for
    procedural tasks. Raises InvalidConfig: no version of this project, too few problems, characters that the policy's
    tokenizer does not know.
    """
    if config["task"]["name"] != TASK:
        return config, None
    params = config["task"]["params"]
    version = version_with_content(project, params["content_hash"]) if params["content_hash"] else None
    if version is None:
        found = (
            f"found {params['content_hash'][:16]!r}, which is no dataset version of this project"
            if params["content_hash"]
            else "no version is chosen"
        )
        raise InvalidConfig([Problem("task.params.content_hash", f"{found}; choose one, or import a file first")])
    for name, known in (("uri", version.uri), ("sha256", version.sha256)):
        if params[name] not in ("", known):
            text = f"found {params[name]!r}, but the version's is {known!r}; leave it out"
            raise InvalidConfig([Problem(f"task.params.{name}", text)])
    filled = {**params, "uri": version.uri, "sha256": version.sha256}
    config = {**config, "task": {**config["task"], "params": filled}}
    problems = [*_too_few(config, version), *_cannot_judge(config, version), *_strange_characters(config, version)]
    if problems:
        raise InvalidConfig(problems)
    return config, version


def problems_in(version: Version) -> dict[str, int]:
    """Distinct problems by split."""
    counts: dict[str, int] = version.report["problems_by_split"]
    return counts


def _too_few(config: dict[str, Any], version: Version) -> list[Problem]:
    kind, evaluation = config["kind"], config["evaluation"]
    asked = {}
    if config.get("split") != "validation":
        asked["test"] = evaluation["final_problems"]
    if kind != "evaluate" or config.get("split") in ("validation", "both"):
        asked["validation"] = evaluation["problems"]
    if kind == "rl":
        asked["train"] = config["task"]["problems"]
    there = problems_in(version)
    return [
        Problem(SETTINGS[split], f"found {count}, but {version} has {there[split]} {split} problems; lower it")
        for split, count in asked.items()
        if count > there[split]
    ]


def _cannot_judge(config: dict[str, Any], version: Version) -> list[Problem]:
    judged = sum(version.report["gold_check"]["decided_by"].values())
    programs = version.report["answer_types"].get("program", 0)
    evaluation = config["evaluation"]
    wants = config["kind"] == "rl" or evaluation["problems"] or evaluation["final_problems"]
    if not wants or judged > programs:
        return []
    why = "is judged by programs' tests, which this release cannot run" if programs else "has no gold answers"
    return [
        Problem(
            "task.params.content_hash",
            f"{version} {why}; fine-tune on its worked solutions, with evaluation.problems and evaluation.final_problems 0",
        )
    ]


def _strange_characters(config: dict[str, Any], version: Version) -> list[Problem]:
    known = _alphabet(config)
    if known is None:
        return []
    strange = {char: line for char, line in version.report["characters"].items() if char not in known}
    if not strange:
        return []
    shown = ", ".join(f"{char!r} (line {line})" for char, line in list(strange.items())[:SHOWN])
    more = f" and {len(strange) - SHOWN} more" if len(strange) > SHOWN else ""
    return [
        Problem(
            "task.params.content_hash",
            f"the policy reads single characters and does not know {shown}{more} of {version.filename}; take a checkpoint with "
            "another tokenizer, or a file without them",
        )
    ]


def _alphabet(config: dict[str, Any]) -> set[str] | None:
    """The characters that the run's policy knows; None for tokenizers that are not made of characters, or unknown ones."""
    base = config["policy"].get("checkpoint")
    if not base:
        return set(ALPHABET)
    try:
        model = json.loads(storage.read(f"{base}/tokenizer.json")).get("model", {})
    except (OSError, ValueError):
        return None
    vocabulary = model.get("vocab")
    if model.get("type") != "WordLevel" or not isinstance(vocabulary, dict):
        return None
    single = {word for word in vocabulary if len(word) == 1}
    # The special tokens are all that a character tokenizer has besides characters.
    return single if len(vocabulary) - len(single) <= 8 else None


def stage_dataset(run: Run) -> None:
    """Puts the version's file where the trainer looks for it. Raises OSError."""
    version = version_of(run)
    if version is not None:
        storage.fetch(version.uri, sha256=version.sha256, size=version.size_bytes)
