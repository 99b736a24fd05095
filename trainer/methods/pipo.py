"""PIPO: policy improvement as the objective (arXiv 2604.00860), over base algorithms with group advantages.

The rule: the mean reward of the next batch says whether the last update made the policy better. Its distance ξ from the means of
the last batches, in their std, weighs one more clipped update on the batch before: its advantages times ξ when progress followed,
weakly reversed (λ·ξ) when a drop did. Then the base's own update runs.

One more forward pass (old log-probs) and one more update an iteration. Deviations: attributions are the released code's
(advantages over their group's Σ|A|); its other clip for negative rewards, its gate on PPO's advantages and its window, which
holds every mean twice, are left out, and so are a probe set, the agreement of ξ's sign with held-out change, and the second
update's own loss and time. The ``detrended`` anchor and what a flat history gives are ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trainer.contract.algorithm import GROUP_ADVANTAGES
from trainer.contract.charts import Chart
from trainer.contract.config import setting
from trainer.contract.presets import PRESETS
from trainer.core.registry import MethodParams, MethodSpec, Paper

if TYPE_CHECKING:
    from trainer.contract.config import RlConfig


class PipoParams(MethodParams):
    """The paper's defaults."""

    window: int = setting(8, "Window K", "How many earlier batches' mean rewards are compared with.", ge=2, le=1000)
    least: int = setting(
        8, "Start after", "Earlier batches before the first look back.", unit="iterations", ge=2, le=1000
    )
    negative: float = setting(
        0.1, "Weight of drops λ", "How much an update that a drop followed is undone; 0: never, 1: as much as reinforced.", ge=0,
        le=1,
    )  # fmt: skip
    anchor: Literal["window_mean", "detrended"] = setting(
        "window_mean",
        "Compared with",
        "The window's mean (paper), or where its straight line leads: steady progress then gives ξ = 0, not 1.84.",
    )
    xi: Literal["measured", "one"] = setting(
        "measured",
        "ξ",
        "'one' looks back with ξ = 1 always: the control for the second update, not the method.",
        advanced=True,
    )


def refused(params: PipoParams, config: RlConfig) -> dict[str, str]:
    """What it cannot run with."""
    out = {}
    if config.sampling.truncated:
        out["sampling"] = (
            "found top_k, top_p or min_p: the tokens that a batch kept are not known any more when PIPO looks back"
        )
    if params.least > params.window:
        out["methods"] = (
            f"pipo: found a start after {params.least} batches and a window of {params.window}; the window forgets"
        )
    return out


SPEC = MethodSpec(
    slug="pipo",
    title="PIPO",
    summary="Looks back at each update: reinforces it when the next batch shows progress, and weakly undoes it when not.",
    paper=Paper(
        "Policy Improvement Reinforcement Learning",
        "2604.00860",
        "Huaiyang Wang, Xiaojie Li, Xiaohan Wang, Zhixia Zhang, Xiaodong Lu, Zixuan Huang, Jiajun Chai, Guojun Yin, "
        "Deqing Wang, Haoyi Zhou, Yaodong Yang, Jianxin Li, Yikun Ban",
    ),
    params=PipoParams,
    parts={"update": ("trainer.updates.retrospective:Retrospective",)},
    bases=tuple(slug for slug, preset in PRESETS.items() if preset.values.get("advantage") in GROUP_ADVANTAGES),
    conflicts={
        "otb": "it gives each token an advantage of its own, and PIPO gives an answer one",
        "quatro": "it has no clip, and PIPO's second update is bounded by one",
        "threadweaver": "its trajectories are trees, and PIPO keeps lines",
    },
    refused=refused,
    problems=("instability", "noisy rewards", "reward drops", "open-loop updates"),
    signals=(
        Chart(
            "pipo_mean",
            "Mean reward and history",
            ("pipo/mu", "pipo/mu_his"),
            "Of this batch, before any filter, and what the window leads one to expect.",
            section="method",
        ),
        Chart(
            "pipo_xi",
            "Progress ξ",
            ("pipo/xi", "pipo/phi"),
            "(mean − expected)/std of the window, and the weight of the second update. It takes a steady trend for progress of "
            "the last update, unless detrended.",
            section="method",
        ),
        Chart(
            "pipo_sigma",
            "Spread of the window",
            ("pipo/sigma_his",),
            "Std of the window's means.",
            section="method",
        ),
        Chart(
            "pipo_retro",
            "Second update",
            ("pipo/retro_clip_fraction", "pipo/negative_steps"),
            "Tokens of the earlier batch that the clip silences, and whether the update was undone.",
            "share",
            True,
            "method",
        ),
        Chart(
            "pipo_kl",
            "Drift since the earlier batch",
            ("pipo/retro_kl",),
            "k3 from the policy that sampled it.",
            "nats/token",
            section="method",
        ),
    ),
)
