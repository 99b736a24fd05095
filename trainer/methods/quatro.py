"""QUATRO: a trust region for each prompt in place of the clip (arXiv 2602.04620), over base algorithms with group advantages.

The rule: for every prompt the policy may move until its KL to the sampling policy is ε. The dual of that problem has one
multiplier λ a prompt, which sets the size of its step, and its optimum is a ratio r* for each rollout; the gradient weight is
λ·ρ·(log r* − log ρ), so that a rollout that has moved too far is pulled back, where a clip would let it go.

Derived: the abstract and a summary were available, so the formulas are ours, the exact solution of the stated problem; ε is a
starting value. Ratios are of whole answers. λ is solved once a batch; re-solving it after each update is left out. A
correction for another sampler is refused, because the region is around the policy that sampled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trainer.contract.charts import Chart
from trainer.contract.config import setting
from trainer.core.registry import MethodParams, MethodSpec, Paper

if TYPE_CHECKING:
    from trainer.contract.config import RlConfig


class QuatroParams(MethodParams):
    """ε is in nats a prompt with the log-ratio summed over an answer; with 'mean' take a hundredth of it."""

    budget: float = setting(
        0.01, "KL budget ε", "How far the policy may move on a prompt. Sweep 0.003 to 0.1.", unit="nats", gt=0, le=10
    )
    log_ratio: Literal["sum", "mean"] = setting(
        "sum", "Log-ratio of an answer", "Summed over its tokens (exact), or their mean (for long answers)."
    )
    scale: Literal["lagrangian", "over_lambda"] = setting(
        "lagrangian",
        "Scale",
        "As the dual has it, or divided by λ: a step of equal KL for every prompt.",
        advanced=True,
    )
    floor: float = setting(
        0.05, "Least λ", "Where the region does not bind, λ would go to 0 and stop the prompt's gradient.", gt=0, le=10,
        advanced=True,
    )  # fmt: skip
    most_ratio: float = setting(
        10.0, "Largest ratio", "Ratios are held to this in the gradient; a guard against overflow.", gt=1, le=1e4,
        advanced=True,
    )  # fmt: skip


def refused(params: QuatroParams, config: RlConfig) -> dict[str, str]:
    """What it cannot run with."""
    a = config.algorithm
    out = {}
    if a.mismatch not in ("off", "auto"):
        out["algorithm.mismatch"] = (
            f"found {a.mismatch!r}, which weighs a clipped surrogate that QUATRO replaces; set 'off'"
        )
    if a.staleness:
        out["algorithm.staleness"] = f"found {a.staleness}: the region is around the policy that sampled; set 0"
    return out


SPEC = MethodSpec(
    slug="quatro",
    title="QUATRO",
    summary="Replaces the clip by a KL budget for every prompt, whose multiplier pulls back what has moved too far.",
    paper=Paper(
        "QUATRO: Query-Adaptive Trust Region Policy Optimization for LLM Fine-tuning",
        "2602.04620",
        "Doyeon Lee, Eunyi Lyou, Hyunsoo Cho, Sookyung Kim, Joonseok Lee, Jaemoo Choi",
    ),
    params=QuatroParams,
    parts={
        "advantage_base": ("trainer.objectives.trust_region:Centred",),
        "policy_objective": ("trainer.objectives.trust_region:TrustRegion",),
    },
    bases=("grpo", "dr-grpo", "trl-grpo", "verl-grpo"),
    conflicts={
        "mcpo": "both hold a prompt's policy to the one that sampled it, which would count the bound twice",
        "threadweaver": "its trajectories come in several samples, and QUATRO's ratio is of one sequence",
    },
    refused=refused,
    derived=True,
    problems=("instability", "stale batches", "entropy collapse", "large learning rate"),
    signals=(
        Chart(
            "quatro_lambda",
            "Multiplier λ",
            ("quatro/lambda_mean", "quatro/lambda_min", "quatro/lambda_max"),
            "Over prompts with mixed rewards. Large: the budget is tight, small: it hardly binds.",
            section="method",
        ),
        Chart(
            "quatro_kl",
            "KL over budget",
            ("quatro/kl_budget_ratio",),
            "Realised KL over ε, mean over rollouts in all updates of a batch; 0 at the first, 1 where the region is used up.",
            section="method",
        ),
        Chart(
            "quatro_pull",
            "Pulled back",
            ("quatro/outside_fraction", "quatro/stabiliser_share"),
            "Rollouts that have moved further than their target, and the share of the pull in the gradient's weight.",
            "share",
            section="method",
        ),
        Chart(
            "quatro_bound",
            "Multiplier at its bound",
            ("quatro/dual_at_bound",),
            "Prompts whose region does not bind, or binds hardly at all.",
            "share",
            True,
            "method",
        ),
    ),
)
