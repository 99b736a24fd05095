"""MCPO: mastery-consolidated policy optimisation (arXiv 2604.16972), over base algorithms with group advantages.

The rule: prompts whose rollouts are all right have no gradient, and yet an update moves the policy on them; so they get a
KL to the policy that sampled them, which is silent within a small budget of drift. Prompts that are mostly right are weighted
less the closer they come to mastery; so their advantages are divided by 2√(p(1 − p)), which keeps their weight.

Deviations: outcomes are read without rewards that only shape them. Over centred rewards (Dr. GRPO) the divisor is
4p(1 − p), because the paper's would still fade; ours, and switchable. The hinge acts from the second update of a batch on; so two
mini-batches are the default, and one update is refused. Mastered prompts count in the policy term's denominator (ours).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trainer.contract.charts import Chart
from trainer.contract.config import setting
from trainer.core.registry import MethodParams, MethodSpec, Paper

if TYPE_CHECKING:
    from trainer.contract.config import RlConfig


class McpoParams(MethodParams):
    """δ and β are the paper's."""

    beta: float = setting(1.0, "Weight of the hinge β", "0 leaves only the reweighting.", ge=0, le=100)
    budget: float = setting(
        0.01, "Drift budget δ", "A token's log-prob may move so far for free.", unit="nats", gt=0, le=1
    )
    reweight: bool = setting(
        True, "Reweight", "Keep the weight of prompts that are mostly right. Off: the hinge alone."
    )
    form: Literal["auto", "simple", "constant"] = setting(
        "auto",
        "Divisor",
        "'simple' 2√(p(1−p)), for advantages with a std; 'constant' 4p(1−p), for centred rewards; 'auto' by the base.",
        advanced=True,
    )
    norm: Literal["mastered", "batch"] = setting(
        "mastered", "Mean of the hinge", "Over the answers of mastered prompts, or over all.", advanced=True
    )
    retention_prompts: int = setting(
        32, "Prompts drawn again", "At a validation, of those mastered before the update.", ge=1, le=1000, advanced=True
    )


def refused(params: McpoParams, config: RlConfig) -> dict[str, str]:
    """What it cannot run with."""
    a = config.algorithm
    out = {}
    if a.zero_variance != "keep":
        out["algorithm.zero_variance"] = (
            f"found {a.zero_variance!r}, which throws away the mastered prompts that MCPO is about; set 'keep'"
        )
    if params.beta and a.num_iterations * a.minibatches < 2:
        out["algorithm.minibatches"] = (
            "found one update a batch, in which MCPO's hinge is exactly 0: there is no drift before the first one; set 2 or "
            "more, or raise algorithm.num_iterations, or set its β to 0"
        )
    return out


SPEC = MethodSpec(
    slug="mcpo",
    title="MCPO",
    summary="Keeps what is mastered with a hinged KL on solved prompts, and keeps the weight of prompts that are nearly solved.",
    paper=Paper(
        "MCPO: Mastery-Consolidated Policy Optimization for Large Reasoning Models",
        "2604.16972",
        "Zhaokang Liao, Yingguo Gao, Yi Yang, Yongheng Hu, Jingting Ding",
    ),
    params=McpoParams,
    parts={
        "advantage": ("trainer.advantages.mastery:Consolidated",),
        "objective": ("trainer.objectives.hinge_kl:HingeKl",),
        "diagnostic": ("trainer.diagnostics.retention:Retention",),
    },
    bases=("grpo", "dr-grpo", "gspo", "cispo", "trl-grpo", "verl-grpo", "verl-gspo"),
    conflicts={
        "a-grae": "both weigh prompts by their success rate, which would count it twice",
        "f-grpo": "one raises the weight of prompts that are nearly solved and the other lowers it",
    },
    algorithm={"minibatches": 2},
    refused=refused,
    problems=("forgets", "mastered prompts are lost", "pass@1 stalls", "instability"),
    signals=(
        Chart(
            "mcpo_prompts",
            "Prompts by mastery",
            ("mcpo/mastered_fraction", "mcpo/majority_fraction", "mcpo/failed_fraction"),
            "Share of the iteration's prompts that are all right, mostly right and all wrong.",
            "share",
            True,
            "method",
        ),
        Chart(
            "mcpo_retention",
            "Still mastered",
            ("mcpo/one_step_retention",),
            "Prompts whose rollouts were all right before an update and are all right again in new ones after it.",
            "share",
            True,
            "method",
        ),
        Chart(
            "mcpo_drift",
            "Drift on mastered prompts",
            ("mcpo/hkl", "mcpo/mean_abs_drift_mastered"),
            "Mean of the hinge and of |log π − log π_old| over their tokens, in all updates of an iteration.",
            "nats",
            section="method",
        ),
        Chart(
            "mcpo_active",
            "Outside the budget",
            ("mcpo/hinge_active_fraction",),
            "Share of mastered prompts' tokens on which the hinge acts.",
            "share",
            True,
            "method",
        ),
        Chart(
            "mcpo_weight",
            "Weight of prompts mostly right",
            ("mcpo/query_weight_majority",),
            "Mean |A|/2 over them; flat where the base algorithm's fades with mastery.",
            section="method",
        ),
    ),
)
