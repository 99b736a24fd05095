"""HAPO: hindsight-anchored policy optimisation (arXiv 2603.11321), over any base with group advantages.

The rule: a Beta posterior of each problem's success probability decides whether the problem is out of reach; if so, a verified
answer of a teacher takes the place of the group's worst rollout before advantages are made. The gate's threshold falls to
zero, so that after a finite horizon training is purely on-policy.

Deviations and what is derived: only the abstracts were available. The exact form of the gate, its discount, the schedule of
the threshold and all defaults are ours. The default treatment of the teacher's tokens is LUFFY's (arXiv 2504.14945); with
``gate`` "always" the method is constant mixing of one teacher's answer into every group that isn't solved. The posterior
counts the run's own rollouts only. Advantages are the base algorithm's, with the teacher's answer as a member of the group.
The teacher's tokens are trained and not sampled: they are in no ratio, clip or KL, and count in the mean of the loss.
"""

from __future__ import annotations

from typing import Literal

from trainer.contract.charts import Chart
from trainer.contract.config import setting
from trainer.core.registry import MethodParams, MethodSpec, Paper


class HapoParams(MethodParams):
    """All defaults but LUFFY's γ are ours."""

    gate: Literal["posterior", "thompson", "always"] = setting(
        "posterior",
        "Gate",
        "Help where it is likely that the problem's success probability is below τ; where a draw from the posterior is; or for "
        "every group that isn't solved (constant mixing, a baseline).",
    )
    tau: float = setting(0.5, "Threshold τ₀", "Of the success probability, at the start.", gt=0, le=1)
    confidence: float = setting(
        0.9, "Confidence", "The gate opens where Pr(θ < τ) is at least this.", gt=0, lt=1, advanced=True
    )
    discount: float = setting(
        0.9, "Discount", "How much earlier visits of a problem count; 0: only this one.", ge=0, le=1, advanced=True
    )
    horizon: float = setting(0.6, "Horizon", "Share of the run's iterations within which τ falls to 0.", gt=0, le=1)
    annealing: Literal["linear", "adaptive"] = setting(
        "linear", "Annealing", "Adaptive: also falls as the success rate nears its aim, and never rises.", advanced=True
    )
    aim: float = setting(
        0.5, "Aim", "Success rate in training at which the adaptive threshold is 0.", gt=0, le=1, advanced=True
    )
    off_policy: Literal["luffy", "detached", "true_ratio"] = setting(
        "luffy",
        "Teacher's tokens",
        "Weighted by π/(π + γ) without a clip; by 1; or by π/π_teacher, clipped, where the teacher's log-probs are stored.",
    )
    gamma: float = setting(0.1, "γ", "Of the weight π/(π + γ).", gt=0, le=10, advanced=True)
    teacher_file: str = setting(
        "",
        "Teacher's answers",
        'JSON lines in the file storage: {"uid" or "prompt": …, "completion": …}. Empty: the task\'s own solutions.',
    )


_BASES = (
    "grpo", "dr-grpo", "dapo", "gspo", "cispo", "rloo", "reinforce-pp-baseline", "opo",
    "trl-grpo", "trl-rloo", "verl-grpo", "verl-rloo", "verl-gspo",
)  # fmt: skip

SPEC = MethodSpec(
    slug="hapo",
    title="HAPO",
    summary="Puts a teacher's right answer in place of the worst rollout of problems that seem out of reach, less and less, "
    "until training is purely on-policy.",
    paper=Paper(
        "Hindsight-Anchored Policy Optimization: Turning Failure into Feedback in Sparse Reward Settings",
        "2603.11321",
        "Yuning Wu, Ke Wang, Devin Chen, Kai Wei",
    ),
    params=HapoParams,
    parts={
        "transform": ("trainer.transforms.success_injection:SuccessInjection",),
        "objective": ("trainer.objectives.off_policy:OffPolicy",),
    },
    bases=_BASES,
    needs=frozenset({"teacher"}),
    conflicts={
        "sps": "SPS's demonstrations must be the policy's own rollouts, and HAPO would put a teacher's among them",
    },
    problems=("sparse reward", "all rollouts fail", "training does not start", "learning from a teacher", "cold start"),
    signals=(
        Chart(
            "hapo_gate",
            "Gate and injections",
            ("hapo/gate_open_rate", "hapo/injected", "hapo/no_teacher"),
            "Groups that need help, that got it, and for which the teacher has no answer. All reach 0 at the horizon.",
            "share",
            True,
            "method",
        ),
        Chart(
            "hapo_threshold",
            "Threshold and posterior",
            ("hapo/tau", "hapo/posterior_mean"),
            "τ, and the mean of the drawn problems' estimated success probability.",
            "",
            True,
            "method",
        ),
        Chart(
            "hapo_mass",
            "Off-policy share",
            ("hapo/offpolicy_grad_mass", "hapo/teacher_token_prob"),
            "Share of |A·weight| on the teacher's tokens, which must reach 0, and the policy's probability of them.",
            "share",
            True,
            "method",
        ),
        Chart(
            "hapo_dead",
            "Groups without a signal",
            ("frac_reward_zero_std", "hapo/collapsed_after"),
            "As rolled out, and after the injection.",
            "share",
            True,
            "method",
        ),
    ),
    derived=True,
)
