"""F-GRPO: focal scaling of group advantages (arXiv 2602.06717), over any base algorithm with group advantages.

The rule: all advantages of a prompt are multiplied by (1 − μ̂)^γ, where μ̂ is the share of its rollouts that are right. An
update on a prompt that is mostly solved is the one that drains probability from right solutions that were not sampled, so
it is made small.

Deviations: the success rate is read from outcomes, without rewards that only shape them (a punishment of length);
continuous outcomes are scaled and clamped to [0, 1]. The change of the log-probs of rare right answers of the base model
is left out: it needs 800 stored rollouts of each of 256 prompts.
"""

from __future__ import annotations

from pydantic import model_validator

from trainer.contract.algorithm import GROUP_ADVANTAGES
from trainer.contract.charts import Chart
from trainer.contract.config import setting
from trainer.contract.presets import PRESETS
from trainer.core.registry import MethodParams, MethodSpec, Paper


class FGrpoParams(MethodParams):
    """The paper sweeps γ over .5, 1 and 2, and takes .5 or 1 everywhere."""

    gamma: float = setting(
        0.5, "Focus γ", "Exponent of (1 − success rate). 0 is the base algorithm; 1 halves it at a half.", ge=0, le=10
    )
    right: float = setting(1.0, "Outcome when right", "For tasks whose outcomes are not 0 and 1.", advanced=True)
    wrong: float = setting(0.0, "Outcome when wrong", "Must be below the one when right.", advanced=True)

    @model_validator(mode="after")
    def _ordered(self) -> FGrpoParams:
        if self.wrong >= self.right:
            raise ValueError(f"outcome when wrong: found {self.wrong}, expected below the one when right, {self.right}")
        return self


SPEC = MethodSpec(
    slug="f-grpo",
    title="F-GRPO",
    summary="Scales a prompt's advantages down as its success rate rises, so that rare right solutions are not forgotten.",
    paper=Paper(
        "F-GRPO: Don't Let Your Policy Learn the Obvious and Forget the Rare",
        "2602.06717",
        "Daniil Plyusov, Alexey Gorbatovski, Boris Shaposhnikov, Viacheslav Sinii, Alexey Malakhov, Daria Korotyshova, "
        "Daniil Gavrilov",
    ),
    params=FGrpoParams,
    parts={"advantage": ("trainer.advantages.focal:FocalShaper",)},
    bases=tuple(slug for slug, preset in PRESETS.items() if preset.values.get("advantage") in GROUP_ADVANTAGES),
    problems=("forgets rare solutions", "pass@k falls", "probability squeezing", "diversity"),
    signals=(
        Chart(
            "fgrpo_weight",
            "Focal weight",
            ("fgrpo/g_mean", "fgrpo/g_active_mean", "fgrpo/update_scale"),
            "Mean weight of all prompts and of those with mixed outcomes, and what is left of the advantages' size. Near 1 "
            "the method does nothing, near 0 the run hardly learns.",
            "share",
            True,
            "method",
        ),
        Chart(
            "fgrpo_tail",
            "Rare solutions missed",
            ("fgrpo/tail_miss_est", "fgrpo/active_fraction"),
            "Chance that a group of mixed outcomes holds no sample of a tenth of the right answers; share of such groups.",
            "share",
            True,
            "method",
        ),
    ),
)
