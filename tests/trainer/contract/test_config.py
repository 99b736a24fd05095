"""A wrong configuration is refused at once, with every problem, its place and what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainer.contract.algorithm import AlgorithmSection
from trainer.contract.config import InvalidConfig, parse_config
from trainer.contract.forms import fields_of
from trainer.contract.presets import PRESETS
from trainer.methods import all_methods, resolve

BASE: dict[str, Any] = {"kind": "rl", "policy": {"checkpoint": "base"}}


def problems(document: Any) -> dict[str, str]:
    with pytest.raises(InvalidConfig) as caught:
        resolve(document)
    return {p.path: p.message for p in caught.value.problems}


def test_a_minimal_document_is_completed() -> None:
    config = resolve(BASE)
    assert config.algorithm.adv_eps == 1e-6
    assert config.task.params["numbers"] == 4


def test_resolving_again_changes_nothing() -> None:
    document = {**BASE, "algorithm": {"preset": "trl-grpo", "epsilon": 0.3},
                "methods": [{"slug": "sps", "params": {"alpha": 1}}]}  # fmt: skip
    once = resolve(document).model_dump(mode="json")
    assert resolve(json.loads(json.dumps(once))).model_dump(mode="json") == once
    assert once["algorithm"]["num_generations"] == 8
    assert once["algorithm"]["epsilon"] == 0.3
    assert once["methods"][0]["params"]["k_rl"] == 5


@pytest.mark.parametrize(
    ("document", "path", "text"),
    [
        ([], "", "expected a JSON object"),
        ({"kind": "dpo"}, "kind", "one of rl, sft, evaluate"),
        ({"kind": "rl"}, "policy", "is required"),
        ({**BASE, "algorithm": {"num_generation": 4}}, "algorithm.num_generation", "did you mean 'num_generations'"),
        ({**BASE, "optimiser": {}}, "optimiser", "did you mean 'optimizer'"),
        ({**BASE, "budget": {"iterations": 0}}, "budget.iterations", "found 0"),
        ({**BASE, "policy": {}}, "policy", "policy.checkpoint"),
        ({**BASE, "task": {"name": "countdwn"}}, "task.name", "did you mean 'countdown'"),
        ({**BASE, "task": {"params": {"number": 3}}}, "task.params.number", "did you mean 'numbers'"),
        ({**BASE, "methods": [{"slug": "spss"}]}, "methods.0.slug", "did you mean 'sps'"),
        ({**BASE, "methods": [{"slug": "sps", "params": {"k_rl": 0}}]}, "methods.0.params.k_rl", "found 0"),
        ({**BASE, "methods": [{"slug": "sps"}, {"slug": "sps"}]}, "methods.1", "same method twice"),
        ({**BASE, "algorithm": {"preset": "grpoo"}}, "algorithm.preset", "did you mean 'grpo'"),
        ({**BASE, "algorithm": {"num_generations": 1}}, "algorithm.num_generations", "at least 2"),
        ({**BASE, "algorithm": {"preset": "dapo"}, "task": {"problems": 32}}, "algorithm.zero_variance", "no others"),
        ({**BASE, "algorithm": {"overlong_buffer": 25}}, "algorithm.overlong_buffer", "at most sampling.max_new_tokens 24"),
        ({**BASE, "algorithm": {"preset": "dapo", "kl_target": 0.1}}, "algorithm.kl_target", "set algorithm.kl_coef"),
        ({**BASE, "algorithm": {"mismatch_min": 4.0}}, "algorithm", "mismatch_min 4.0 is above mismatch_max 3.0"),
        ({**BASE, "sampling": {"top_p": 0}}, "sampling.top_p", "greater than 0"),
        ({**BASE, "sampling": {"top_k": 2.5}}, "sampling.top_k", "integer"),
        ({**BASE, "sampling": {"min_p": 1.5}}, "sampling.min_p", "less than or equal to 1"),
        ({**BASE, "task": {"problems": 8}}, "algorithm.prompts_per_iteration", "raise task.problems"),
        ({**BASE, "optimizer": {"learning_rate": float("nan")}}, "optimizer.learning_rate", "finite"),
        ({**BASE, "schema_version": 2}, "schema_version", "reads versions up to 1"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(document: Any, path: str, text: str) -> None:
    assert text in problems(document)[path]


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_resolves_and_says_where_it_is_from(preset: str) -> None:
    config = resolve({**BASE, "algorithm": {"preset": preset}})
    for name, value in PRESETS[preset].values.items():
        assert getattr(config.algorithm, name) == value
    assert PRESETS[preset].source
    assert PRESETS[preset].summary


def test_what_needs_no_group_may_have_one_rollout_a_prompt() -> None:
    for preset in ("ppo", "reinforce", "reinforce-pp"):
        assert resolve({**BASE, "algorithm": {"preset": preset, "num_generations": 1}})


def test_all_problems_come_at_once() -> None:
    found = problems({**BASE, "budget": {"iterations": 0}, "optimizer": {"learning_rate": -1}})
    assert set(found) == {"budget.iterations", "optimizer.learning_rate"}


def test_parameters_are_checked_even_when_a_section_is_wrong() -> None:
    found = problems(
        {
            **BASE,
            "budget": {"iterations": "many"},
            "task": {"name": "mod_chain", "params": {"modulus": 1}},
            "methods": [{"slug": "sps", "params": {"alpha": 0}}, "no method"],
        }
    )
    wrong = {"budget.iterations", "task.params.modulus", "methods.0.params.alpha", "methods.1"}
    assert set(found) == wrong


def test_a_policy_is_a_checkpoint_or_an_architecture() -> None:
    both = {"kind": "sft", "policy": {"checkpoint": "x", "architecture": {}}}
    with pytest.raises(InvalidConfig, match="not both"):
        parse_config(both)


def test_every_setting_has_a_title_and_help() -> None:
    for model in (AlgorithmSection, *(spec.params for spec in all_methods().values())):
        for field in fields_of(model):
            assert field.title, field.path
            assert field.help, field.path


def test_form_fields_carry_limits_and_kinds() -> None:
    fields = {f.path: f for f in fields_of(all_methods()["sps"].params)}
    assert (fields["k_rl"].widget, fields["k_rl"].minimum, fields["k_rl"].default) == ("integer", 1, 5)
    assert fields["target"].choices == ("reward_boltzmann", "uniform_distinct", "correct_uniform")
    assert fields["score_scale"].widget == "checkbox"
    assert fields["score_scale"].advanced
