"""IS-GRPO: normalisation by sampling (arXiv 2601.23135), over base algorithms whose advantage is not divided by a std.

The rule: dividing a prompt's advantages by the std of its rewards makes the right step for its curvature, but the update is
then no gradient of the mean reward, for it weighs prompts. So prompts are drawn in proportion to their std instead, and each is
weighted by ω = 1/(n·q): in expectation the whole pool's gradient, with the adaptive size of each step.

Derived: only abstracts were available; the rule is ours. The std comes from a Beta posterior over earlier visits that forgets;
the current group's rewards would bias it. Drawing from a pool of candidates that are rolled out first, and the probes of
curvature and of gradients' angles, are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer.contract.charts import Chart
from trainer.contract.config import setting
from trainer.contract.presets import PRESETS
from trainer.core.registry import MethodParams, MethodSpec, Paper

if TYPE_CHECKING:
    from trainer.contract.config import RlConfig


class IsGrpoParams(MethodParams):
    """Ours, where the paper's are not known."""

    floor: float = setting(
        0.1, "Uniform floor η", "Share of the draws that go to all prompts alike; keeps weights finite.", gt=0, le=1
    )
    memory: float = setting(
        0.9, "Memory of a visit", "How much earlier visits of a prompt count at its next one; 1: for ever.", ge=0, le=1
    )
    most: float = setting(
        10.0,
        "Largest weight",
        "ω is held to this; what is held is a bias, whose share is charted.",
        ge=1,
        advanced=True,
    )


def refused(params: IsGrpoParams, config: RlConfig) -> dict[str, str]:
    """What it cannot run with."""
    drops = config.algorithm.zero_variance
    if drops == "keep":
        return {}
    why = f"found {drops!r}, which changes the distribution of prompts that IS-GRPO's weights are for; set 'keep'"
    return {"algorithm.zero_variance": why}


SPEC = MethodSpec(
    slug="is-grpo",
    title="IS-GRPO",
    summary="Draws prompts in proportion to the spread of their rewards and weighs them back, instead of dividing by the spread.",
    paper=Paper(
        "Why GRPO Needs Normalization: A Local-Curvature Perspective on Adaptive Gradients",
        "2601.23135",
        "Cheng Ge, Caitlyn Heqi Yin, Hao Liang, Jiawei Zhang",
    ),
    params=IsGrpoParams,
    parts={
        "curriculum": ("trainer.curricula.importance:SpreadSampling",),
        "advantage": ("trainer.curricula.importance:ImportanceWeight",),
    },
    bases=tuple(
        slug for slug, preset in PRESETS.items() if preset.values.get("advantage") in ("group_mean", "leave_one_out")
    ),
    refused=refused,
    derived=True,
    problems=("mixed difficulty", "slow learning", "zero-variance groups", "instability"),
    signals=(
        Chart(
            "isgrpo_kappa",
            "Heterogeneity κ",
            ("isgrpo/kappa",),
            "(mean σ)²/mean σ² over the pool, by what earlier visits showed. 1: all prompts spread alike, and nothing is gained.",
            "share",
            True,
            "method",
        ),
        Chart(
            "isgrpo_sigma",
            "Spread of rewards",
            ("isgrpo/sigma_mean", "isgrpo/sigma_cv"),
            "Mean σ over the pool, and its coefficient of variation.",
            section="method",
        ),
        Chart(
            "isgrpo_draws",
            "How even the draws are",
            ("isgrpo/q_entropy",),
            "Entropy of the draw's distribution over its largest value; 1: uniform.",
            "share",
            True,
            "method",
        ),
        Chart(
            "isgrpo_weight",
            "Largest weight",
            ("isgrpo/weight_max",),
            "ω of the prompt that was least likely to be drawn.",
            section="method",
        ),
        Chart(
            "isgrpo_lost",
            "Held weights and wasted draws",
            ("isgrpo/weight_clipped", "isgrpo/zero_variance_draws"),
            "Prompts whose weight was held, and prompts whose rollouts were all alike.",
            "share",
            True,
            "method",
        ),
    ),
)
