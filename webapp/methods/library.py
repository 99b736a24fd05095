"""The library as data: what methods, base algorithms and tasks there are, with the schemas of their settings."""

from typing import Any

from pydantic import TypeAdapter

from trainer.contract.config import KINDS, RunConfig
from trainer.contract.presets import PRESETS, Preset
from trainer.core.registry import MethodSpec
from trainer.data.tasks import TASKS
from trainer.methods import all_methods
from trainer.studies.report import verdict_of


def methods() -> list[dict[str, Any]]:
    """Every method: slug, title, summary, paper, status, derived, problems, bases, needs, slots, conflicts, study verdict."""
    return [_method(spec) for spec in all_methods().values()]


def method(slug: str) -> dict[str, Any] | None:
    """One of them, with the JSON schema of its parameters and its charts; None for an unknown slug."""
    spec = all_methods().get(slug)
    if spec is None:
        return None
    signals = [{"slug": chart.slug, "title": chart.title} for chart in spec.signals]
    return {**_method(spec), "params": spec.params.model_json_schema(), "signals": signals}


def _method(spec: MethodSpec) -> dict[str, Any]:
    return {
        "slug": spec.slug,
        "title": spec.title,
        "summary": spec.summary,
        "paper": {"title": spec.paper.title, "arxiv": spec.paper.arxiv, "authors": spec.paper.authors},
        "status": spec.status,
        "derived": spec.derived,
        "problems": list(spec.problems),
        "bases": list(spec.bases),
        "needs": sorted(spec.needs),
        "slots": sorted(spec.parts),
        "conflicts": dict(spec.conflicts),
        "study": verdict_of(spec.slug),
    }


def presets() -> list[dict[str, Any]]:
    """Every base algorithm: slug, title, source, summary, and the settings in which it differs from the defaults."""
    return [_preset(preset) for preset in PRESETS.values()]


def _preset(preset: Preset) -> dict[str, Any]:
    names = ("slug", "title", "source", "summary", "values")
    return {name: getattr(preset, name) for name in names}


def tasks() -> list[dict[str, Any]]:
    """Every task: name, title, description, checker version, and the JSON schema of its parameters."""
    return [
        {
            "name": name,
            "title": task.title,
            "description": task.description,
            "checker_version": task.checker_version,
            "params": task.Params.model_json_schema(),
        }
        for name, task in TASKS.items()
    ]


def config_schema(kind: str) -> dict[str, Any] | None:
    """The JSON schema of a run's configuration of this kind; None for an unknown kind."""
    return KINDS[kind].model_json_schema() if kind in KINDS else None


def document_schemas(name: str, prefix: str) -> dict[str, dict[str, Any]]:
    """Schemas by name for a collection whose members refer to each other as `prefix` + name; `name` is the document."""
    schema = TypeAdapter(RunConfig).json_schema(ref_template=f"{prefix}{{model}}")
    parts: dict[str, dict[str, Any]] = schema.pop("$defs")
    for model in KINDS.values():
        # A default for the classes, but what tells the kinds apart must be said in a document.
        part = parts[model.__name__]
        part["required"] = sorted({*part.get("required", ()), "kind"})
    return {**parts, name: schema}
