"""What lists call a run's method."""

from trainer.contract.presets import PRESETS
from webapp.methods.selectors import method_titles
from webapp.runs.models import Run, RunKind


def method_of(run: Run) -> str:
    """Titles of the methods on their base algorithm ("SPS", "SPS on Dr. GRPO", "GRPO"), or the kind of a run without one."""
    if run.kind != RunKind.RL:
        return str(RunKind(run.kind).label)
    base = preset_title(str((run.config.get("algorithm") or {}).get("preset", "grpo")))
    methods = " + ".join(method_titles(run.methods))
    if not methods:
        return base
    return methods if base == preset_title("grpo") else f"{methods} on {base}"


def preset_title(slug: str) -> str:
    """The base algorithm's title; an unknown one by its slug."""
    return PRESETS[slug].title if slug in PRESETS else slug
