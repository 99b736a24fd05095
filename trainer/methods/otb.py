"""OTB: the optimal token baseline (arXiv 2602.07078), in place of a base algorithm's group advantage.

The rule: the return of a rollout is compared, at every token, with a mean over the prompt's rollouts that still run there, in
which each counts by how large its score gradient has been so far. That weight is the sum of ‖e_a − π‖² over its tokens, the
squared gradient norm in logit space, which the forward pass gives; it is the weighting that makes the variance least.

One more forward pass an iteration, for Σπ², where none is made for old log-probs (one update a batch). Deviations: weights
of a sampler correction don't enter the energy; the exact gradient norm by one backward pass a sequence is left out.
``leave_one_out`` is ours; ``zero_tail`` and the alignment by policy tokens are the released code's.
"""

from __future__ import annotations

from typing import Literal

from trainer.contract.algorithm import GROUP_ADVANTAGES
from trainer.contract.charts import Chart
from trainer.contract.config import setting
from trainer.contract.presets import PRESETS
from trainer.core.registry import MethodParams, MethodSpec, Paper


class OtbParams(MethodParams):
    """The released code's defaults for single-turn tasks."""

    baseline: Literal["token", "sequence", "length", "mean"] = setting(
        "token",
        "Baseline",
        "Weights of the rollouts: the energy up to the token (the method), that of the whole answer, its length (OPO), or "
        "equal ones, to compare with.",
    )
    zero_tail: bool = setting(
        False,
        "No baseline in the tail",
        "Where only the longest rollout still runs, its own return is its baseline and teaches nothing; on: 0 there.",
    )
    leave_one_out: bool = setting(
        False,
        "Leave one out",
        "A rollout's own return stays out of its baseline, which is then unbiased; ours.",
        advanced=True,
    )


SPEC = MethodSpec(
    slug="otb",
    title="OTB",
    summary="Gives every token a baseline weighted by realised gradient energy, so that long answers make no gradient spikes.",
    paper=Paper(
        "The Optimal Token Baseline: Variance Reduction for Long-Horizon LLM-RL",
        "2602.07078",
        "Yingru Li, Jiawei Xu, Ziniu Li, Jiacai Liu, Wei Liu, Yuxuan Tong, Longtao Zheng, Zhenghai Xue, Yaxiang Zhang, "
        "Tianle Cai, Ge Zhang, Qian Liu, Baoxiang Wang",
    ),
    params=OtbParams,
    parts={
        "advantage_base": ("trainer.advantages.token_baseline:TokenBaseline",),
        "objective": ("trainer.advantages.token_baseline:VarianceProxies",),
    },
    bases=tuple(slug for slug, preset in PRESETS.items() if preset.values.get("advantage") in GROUP_ADVANTAGES),
    needs=frozenset({"collision"}),
    conflicts={
        "a-grae": "it rescales one advantage a sequence, and these differ from token to token",
        "mcpo": "it rescales one advantage a sequence, and these differ from token to token",
        "threadweaver": "the samples of its trajectories have no common order of tokens to compare at",
    },
    problems=("instability", "gradient spikes", "long answers", "small groups", "variance"),
    signals=(
        Chart(
            "otb_energy",
            "Score energy",
            ("otb/energy_final", "otb/energy_mean", "otb/w_mean"),
            "Σ ‖e_a − π‖² over an answer, its mean along it, and one token's. Near 0 the policy is deterministic, and any "
            "baseline will do.",
            section="method",
        ),
        Chart(
            "otb_baseline",
            "Baseline minus group mean",
            ("otb/baseline_minus_mean",),
            "Mean over tokens. Positive where what is right moves the policy more.",
            section="method",
        ),
        Chart(
            "otb_tail",
            "Tokens of one rollout alone",
            ("otb/zero_tail_tokens",),
            "Share of tokens beyond the second longest rollout, which teach nothing unless the tail has no baseline.",
            "share",
            True,
            "method",
        ),
        Chart(
            "otb_variance",
            "Power of the advantages",
            ("variance_proxy/total_power", "variance_proxy/signal_strength", "variance_proxy/pure_noise"),
            "Mean of energy × advantage², the squared gradient norm, and what is left of the first for each other rollout.",
            section="method",
        ),
    ),
)
