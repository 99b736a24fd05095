"""A-GRAE: asymmetric group-relative advantages (arXiv 2602.05548), over base algorithms with group advantages.

The rule: group advantages sum to zero, so that answers which were not sampled feel no pull, and a prompt weighs most at a
success rate of a half at every stage. With the batch's mean outcome ω as a measure of progress, A-GRAE moves the weight
from easy to hard prompts as ω rises, and multiplies positive advantages by min(1, ω/α). The sum of a group's advantages
is then not zero, on purpose.

Deviations: the released code divides the easy part by 1 − √p + 1e-6 where the paper has √(1 − p); the paper's is the
default. A smoothed ω, for small batches, is ours and off. Over a base without a standard deviation the blend is applied to
the centred rewards, which is ours too.
"""

from __future__ import annotations

from typing import Literal

from trainer.contract.charts import Chart
from trainer.contract.config import setting
from trainer.core.registry import MethodParams, MethodSpec, Paper


class AGraeParams(MethodParams):
    """The paper takes α = 1 for mathematics and .5 where runs collapse more easily."""

    alpha: float = setting(1.0, "Progress α", "Mean outcome from which positive advantages count in full.", gt=0, le=1)
    difficulty: Literal["blend", "hard", "easy", "off"] = setting(
        "blend",
        "Difficulty",
        "From easy to hard prompts as the mean outcome rises (the method); or one of them always.",
    )
    positives: Literal["progress", "0.1", "1", "10"] = setting(
        "progress",
        "Positive advantages",
        "Multiplied by min(1, ω/α) (the method), or by a constant, as in the paper's controlled runs.",
        advanced=True,
    )
    easy_denominator: Literal["paper", "code"] = setting(
        "paper", "Divisor of the easy part", "√(1 − p), or the released code's 1 − √p + 1e-6.", advanced=True
    )
    smoothing: float = setting(
        0.0, "Smoothing of ω", "Decay of a moving average; 0: this batch alone.", ge=0, lt=1, advanced=True
    )


SPEC = MethodSpec(
    slug="a-grae",
    title="A-GRAE",
    summary="Makes group advantages asymmetric: easy prompts first, hard ones later, and less pull towards right answers "
    "while few are right.",
    paper=Paper(
        "Unveiling Implicit Advantage Symmetry: Why GRPO Struggles with Exploration and Difficulty Adaptation",
        "2602.05548",
        "Zhiqi Yu, Zhangquan Chen, Mengting Liu, Heye Zhang, Liangqiong Qu",
    ),
    params=AGraeParams,
    parts={"advantage": ("trainer.advantages.difficulty:AsymmetricShaper",)},
    bases=("grpo", "dr-grpo", "gspo", "cispo", "trl-grpo", "verl-grpo"),
    conflicts={"f-grpo": "both weigh prompts by their success rate, which would count it twice"},
    problems=("entropy collapse", "exploration", "pass@k falls", "difficulty"),
    signals=(
        Chart(
            "agrae_progress",
            "Progress ω",
            ("agrae/omega", "agrae/attenuation"),
            "The batch's mean outcome, which is also the weight of hard prompts, and the factor on positive advantages.",
            "share",
            True,
            "method",
        ),
        Chart(
            "agrae_mass",
            "Advantages of a group",
            ("agrae/adv_sum", "agrae/pos_mass", "agrae/neg_mass"),
            "Σ A and its two parts, mean over groups. A negative sum raises what was not sampled; if all answers are wrong "
            "soon after, it is too negative.",
            section="method",
        ),
    ),
)
