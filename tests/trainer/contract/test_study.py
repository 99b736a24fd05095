"""The study documents: what they refuse, and which launch documents they make."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from trainer.contract.study import Study, merged
from trainer.methods import all_methods, resolve
from trainer.studies import load_study, study_slugs

SMALL = {
    "slug": "small",
    "title": "Small",
    "method": "sps",
    "claim": "…",
    "base": {"checkpoint": "countdown4-base"},
    "launch": {"kind": "rl", "budget": {"iterations": 50}, "algorithm": {"kl_coef": 0.0, "num_generations": 8}},
    "arms": [
        {"name": "grpo", "title": "GRPO", "role": "baseline"},
        {"name": "slow", "title": "Slow", "role": "control", "family": "grpo", "budget_share": 0.5},
        {"name": "sps", "title": "SPS", "role": "method", "changes": {"methods": [{"slug": "sps"}]}},
    ],
    "budget": {"axis": "sampled_tokens", "amount": 1000},
    "primary": {"arm": "sps", "against": "grpo"},
    "quick": {"arms": ["grpo", "sps"], "amount": 100, "samples": 16, "temperatures": [1.3]},
}


def study(**changes) -> Study:
    return Study.model_validate({**SMALL, **changes})


def test_an_arm_is_a_merge_patch_of_the_launch_document() -> None:
    """The example of RFC 7386, appendix A, in short."""
    patched = merged({"a": "b", "c": {"d": "e", "f": "g"}, "l": [1, 2]}, {"a": "z", "c": {"f": None}, "l": [3]})
    assert patched == {"a": "z", "c": {"d": "e"}, "l": [3]}


def test_documents_differ_in_what_the_arm_says_and_the_budget() -> None:
    one = study()
    documents = {arm.name: one.document(arm, seed=3, checkpoint="B", form="full") for arm in one.arms}
    assert documents["grpo"]["budget"] == {"iterations": 50, "sampled_tokens": 1000}
    assert documents["slow"] == merged(documents["grpo"], {"budget": {"sampled_tokens": 500}})
    assert documents["sps"] == merged(documents["grpo"], {"methods": [{"slug": "sps"}]})
    assert one.document(one.arms[0], seed=3, checkpoint="B", form="quick")["budget"]["sampled_tokens"] == 100


def test_the_quick_form_takes_less_and_keeps_the_rest() -> None:
    one = study()
    assert [arm.name for arm in one.chosen("quick")] == ["grpo", "sps"]
    assert (one.protocol("quick").samples, one.protocol("quick").problems) == (16, 200)
    assert one.protocol("quick").temperatures == (1.3,)
    assert one.protocol("full").temperatures == (1.0,)
    assert [arm.name for arm in one.side("grpo", "quick")] == ["grpo"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"primary": {"arm": "nobody", "against": "grpo"}}, "expected an arm or a family"),
        ({"primary": {"arm": "sps", "against": "grpo", "metric": "pass@128"}}, "no estimate from 64 samples"),
        ({"primary": {"arm": "sps", "against": "grpo", "metric": "pass@32"}}, "no estimate from 16 samples"),
        ({"quick": {"arms": ["grpo"]}}, "leaves out sps"),
        ({"quick": {"arms": ["grpo", "else"]}}, "expected names of grpo, slow, sps"),
        ({"arms": [SMALL["arms"][0], SMALL["arms"][0]]}, "two arms have one name"),
        ({"base": {}}, "not both"),
    ],
)
def test_a_wrong_study_is_refused_with_the_reason(changes, message) -> None:
    with pytest.raises(ValidationError, match=message):
        study(**changes)


@pytest.mark.parametrize("slug", study_slugs())
def test_every_study_can_be_launched(slug) -> None:
    """Each arm of each form makes a configuration that the trainer accepts, and says rightly whether it is derived."""
    one = load_study(slug)
    assert one.slug == slug
    assert one.derived == all_methods()[one.method].derived
    for form in ("full", "quick"):
        for arm in one.chosen(form):
            resolve(one.document(arm, seed=0, checkpoint="B", form=form))
        for split in ("test", "both"):
            config = resolve(one.evaluation_document(checkpoint="B", split=split, form=form))
            assert {*config.temperatures, config.evaluation.temperature} == set(one.protocol(form).temperatures)
