"""Every method over every base algorithm, and every two methods together: they run, or are refused with the reason.

A method needs nothing here: what it says of itself (``bases``, ``conflicts``, its slots) decides what is tried.
"""

from __future__ import annotations

from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import pytest

from trainer.contract.config import InvalidConfig
from trainer.contract.exit_codes import ExitCode
from trainer.contract.presets import PRESETS
from trainer.methods import all_methods, conflict_between, resolve
from trainer.testing.replay import story_of

METHODS = all_methods()
PAIRS = list(combinations_with_replacement(METHODS, 2))
TOGETHER = [pair for pair in PAIRS if conflict_between(*(METHODS[slug] for slug in pair)) is None]
APART = [pair for pair in PAIRS if pair not in TOGETHER]
EAGER: dict[str, dict[str, Any]] = {
    "sps": {"k_rl": 1, "k_irl": 1, "prompts": "all"},
    "hapo": {"gate": "always"},
    "threadweaver": {"tags": "letters", "refine": 1},
}
"""Parameters with which a method acts within two iterations on the tiny model, where its defaults wait longer."""


def two_iterations(document: Any, slugs: tuple[str, ...], preset: str | None = None) -> dict[str, Any]:
    allowed = [set(METHODS[slug].bases or PRESETS) for slug in slugs]
    common = set.intersection(*allowed)
    chosen = preset or ("grpo" if "grpo" in common else sorted(common)[0])
    made: dict[str, Any] = document(
        methods=[{"slug": slug, "params": EAGER.get(slug, {})} for slug in slugs],
        algorithm={"preset": chosen, "prompts_per_iteration": 4, "num_generations": 4},
        budget={"iterations": 2},
        checkpoints={"every": 0},
        evaluation={"every": 2, "problems": 4, "samples": 2, "final_problems": 0},
    )
    return made


def runs(run: Any, document: dict[str, Any], folder: Path) -> None:
    assert run(document, folder) == ExitCode.FINISHED, story_of(folder).last_message
    assert story_of(folder).axes[2]["iteration"] == 2


@pytest.mark.parametrize("pair", TOGETHER, ids="+".join)
@pytest.mark.slow
def test_two_methods_that_go_together_run(pair, run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    runs(run, two_iterations(document, pair), tmp_path / "r")


@pytest.mark.parametrize("pair", APART, ids="+".join)
def test_two_methods_that_do_not_are_refused_with_the_reason(pair, document) -> None:  # type: ignore[no-untyped-def]
    reason = conflict_between(*(METHODS[slug] for slug in pair))
    assert reason is not None
    assert len(reason.split()) >= 4
    with pytest.raises(InvalidConfig) as refused:
        resolve(two_iterations(document, pair))
    assert reason in str(refused.value)


@pytest.mark.parametrize(("slug", "preset"), [(s, p) for s, spec in METHODS.items() for p in spec.bases or PRESETS])
@pytest.mark.slow
def test_a_method_runs_over_every_base_that_it_claims(slug, preset, run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    runs(run, two_iterations(document, (slug,), preset), tmp_path / "r")


@pytest.mark.parametrize(("slug", "preset"), [(s, p) for s, spec in METHODS.items() for p in PRESETS])
def test_a_base_that_it_does_not_claim_is_refused(slug, preset, document) -> None:  # type: ignore[no-untyped-def]
    spec = METHODS[slug]
    if not spec.bases or preset in spec.bases:
        assert resolve(two_iterations(document, (slug,), preset))
        return
    with pytest.raises(InvalidConfig, match=f"{spec.title} runs over"):
        resolve(two_iterations(document, (slug,), preset))


@pytest.mark.parametrize("slug", METHODS)
def test_a_frozen_run_of_it_changes_no_evaluation(slug, run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    frozen = two_iterations(document, (slug,)) | {"optimizer": {"learning_rate": 0.0}}
    runs(run, frozen, tmp_path / "r")
    found = story_of(tmp_path / "r")
    assert found.evaluations[0, "validation"] == found.evaluations[2, "validation"]


@pytest.mark.parametrize("slug", METHODS)
def test_every_series_of_its_charts_has_a_name_and_an_explanation(slug: str) -> None:
    from trainer.contract.metric_names import METRICS

    missing = [key for chart in METHODS[slug].signals for key in chart.series if key not in METRICS]
    assert not missing


@pytest.mark.parametrize("slug", METHODS)
def test_its_parameters_explain_themselves(slug: str) -> None:
    for field in METHODS[slug].params.model_fields.values():
        assert field.title
        assert field.description
        assert not field.is_required()
