"""Every default of every base algorithm, once, with its source.

A preset is what `AlgorithmSection.preset` names: the fields a launcher does not give are filled from here. Plain
names are the papers' algorithms (``grpo`` is that of DeepSeekMath); ``trl-…`` and ``verl-…`` reproduce those trainers' own
defaults, so that a run here can be held against a run there.

The sampler correction stays ``auto`` where nothing else is said: with vLLM it is TRL's default (sequence_mask, at most 3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer.contract.config import AlgorithmSection


@dataclass(frozen=True)
class Preset:
    """A named row: ``title`` and ``source`` for people, ``values`` for `AlgorithmSection`."""

    slug: str
    title: str
    source: str
    summary: str
    values: dict[str, Any] = field(default_factory=dict)


_GROUP = {"advantage": "group_zscore", "adv_eps": 1e-6}
_TRL = {"adv_eps": 1e-4, "num_generations": 8, "count_empty": True, "kl_ratio": True}
# verl's rollout correction is off; its threshold, once it is on, is 2.
_VERL_SAMPLER = {"mismatch": "off", "mismatch_max": 2.0}
_VERL = {"aggregation": "token-mean", "dual_clip": 3.0, **_VERL_SAMPLER}

PRESETS: dict[str, Preset] = {
    p.slug: p
    for p in [
        Preset(
            "grpo",
            "GRPO",
            "arXiv 2402.03300 (DeepSeekMath)",
            "Group z-score advantage, token ratio clipped at ±0.2, sequence-mean of token-means, KL to the base in the loss.",
            {**_GROUP, "aggregation": "seq-mean-token-mean", "kl_coef": 0.04, "kl_estimator": "k3"},
        ),
        Preset(
            "dr-grpo",
            "Dr. GRPO",
            "arXiv 2503.20783",
            "Centred rewards without the group's standard deviation, and a constant length in the denominator.",
            {"advantage": "group_mean", "aggregation": "seq-mean-token-sum-norm"},
        ),
        Preset(
            "dapo",
            "DAPO",
            "arXiv 2503.14476",
            "Clip-higher, mean over all tokens, groups without a signal replaced by sampling on; no KL. The soft overlong "
            "punishment needs a buffer in tokens (the paper's is a fifth of the limit) and is off until you give one.",
            {
                **_GROUP,
                "epsilon_high": 0.28,
                "aggregation": "token-mean",
                "zero_variance": "refill",
                "max_rounds": 10,
                "overlong_factor": 0.5,
            },
        ),
        Preset(
            "gspo",
            "GSPO",
            "arXiv 2507.18071",
            "One ratio a sequence (geometric mean) with a very narrow clip, four mini-batches a batch.",
            {
                **_GROUP,
                "ratio": "sequence",
                "epsilon": 3e-4,
                "epsilon_high": 4e-4,
                "aggregation": "seq-mean-token-mean",
                "minibatches": 4,
            },
        ),
        Preset(
            "cispo",
            "CISPO",
            "arXiv 2506.13585 (MiniMax-M1); cap of 5 as ScaleRL recommends",
            "Log-prob weighted by the stopped ratio, capped from above only: no token loses its gradient.",
            {**_GROUP, "surrogate": "cispo", "cispo_cap": 5.0, "aggregation": "token-mean"},
        ),
        Preset(
            "reinforce",
            "REINFORCE",
            "Williams, 1992",
            "Reward minus a moving average of earlier rewards, plain log-prob surrogate, mean over sequences of the sum.",
            {
                "advantage": "reinforce",
                "baseline": "moving",
                "surrogate": "reinforce",
                "aggregation": "seq-mean-token-sum",
            },
        ),
        Preset(
            "rloo",
            "RLOO",
            "arXiv 2402.14740",
            "Leave-one-out baseline, plain log-prob surrogate, mean over sequences of the token sum.",
            {"advantage": "leave_one_out", "surrogate": "reinforce", "aggregation": "seq-mean-token-sum"},
        ),
        Preset(
            "reinforce-pp",
            "REINFORCE++",
            "arXiv 2501.03262; β of verl's kl_ctrl",
            "No groups: returns with the KL to the base in each token's reward, whitened over all tokens of the batch.",
            {
                "advantage": "whitened_return",
                "aggregation": "token-mean",
                "kl_coef": 0.001,
                "kl_place": "reward",
                "kl_estimator": "k1",
            },
        ),
        Preset(
            "reinforce-pp-baseline",
            "REINFORCE++ with group baseline",
            "arXiv 2501.03262; β of verl's kl_loss_coef",
            "The group's mean taken off, then whitened over all tokens of the batch; KL in the loss with the gradient of k2.",
            {
                "advantage": "whitened_group_mean",
                "aggregation": "token-mean",
                "kl_coef": 0.001,
                "kl_place": "loss",
                "kl_estimator": "k2",
            },
        ),
        Preset(
            "opo",
            "OPO",
            "arXiv 2505.23585",
            "Group baseline weighted by length, on-policy without a clip or KL.",
            {"advantage": "length_weighted", "surrogate": "reinforce", "aggregation": "token-mean"},
        ),
        Preset(
            "ppo",
            "PPO",
            "arXiv 1707.06347; values of TRL's former PPOConfig",
            "A value head on the policy and whitened GAE, four epochs a batch, KL to the base in each token's reward.",
            {
                "advantage": "gae",
                "gamma": 1.0,
                "gae_lambda": 0.95,
                "value_coef": 0.1,
                "value_clip": 0.2,
                "aggregation": "token-mean",
                "kl_coef": 0.05,
                "kl_place": "reward",
                "kl_estimator": "k1",
                "num_iterations": 4,
            },
        ),
        Preset(
            "trl-grpo",
            "GRPO as TRL's defaults",
            "TRL 1.16 GRPOConfig",
            "loss_type=dapo (mean over all tokens), ε on std 1e-4, β 0, 8 generations.",
            {"advantage": "group_zscore", "aggregation": "token-mean", **_TRL},
        ),
        Preset(
            "trl-rloo",
            "RLOO as TRL's defaults",
            "TRL 1.16 RLOOConfig",
            "Leave-one-out advantage, the ratio of whole sequences clipped at ±0.2, KL (k1, β 0.05) in the reward, 2 "
            "generations.",
            {
                "advantage": "leave_one_out",
                "ratio": "sequence_sum",
                "aggregation": "seq-mean-token-mean",
                "kl_coef": 0.05,
                "kl_place": "reward",
                "kl_estimator": "k1",
                "num_generations": 2,
                "count_empty": True,
            },
        ),
        Preset(
            "verl-grpo",
            "GRPO as verl's defaults",
            "verl 0.9 (adv_estimator=grpo)",
            "Mean over all tokens, dual clip at 3, ε on std 1e-6.",
            {**_GROUP, **_VERL},
        ),
        Preset(
            "verl-ppo",
            "PPO as verl's defaults",
            "verl 0.9 (adv_estimator=gae)",
            "GAE with λ 1, dual clip at 3, value clip 0.5, one epoch, no KL. verl's critic is a model of its own; here it is "
            "a head on the policy, with weight 1.",
            {
                "advantage": "gae",
                "gamma": 1.0,
                "gae_lambda": 1.0,
                "value_coef": 1.0,
                "value_clip": 0.5,
                **_VERL,
            },
        ),
        Preset(
            "verl-rloo",
            "RLOO as verl's defaults",
            "verl 0.9 (adv_estimator=rloo)",
            "Leave-one-out advantage in verl's token-mean PPO loss with dual clip at 3.",
            {"advantage": "leave_one_out", **_VERL},
        ),
        Preset(
            "verl-gspo",
            "GSPO as verl's loss",
            "verl 0.9 (policy_loss=gspo)",
            "The sequence's ratio with a gradient per token, clip of the paper.",
            {
                **_GROUP,
                "ratio": "sequence_token",
                "epsilon": 3e-4,
                "epsilon_high": 4e-4,
                "aggregation": "seq-mean-token-mean",
                **_VERL_SAMPLER,
            },
        ),
    ]
}


def fill(section: dict[str, Any], more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """An algorithm section with the preset's values, and ``more`` over them, under what is given. Raises KeyError on an
    unknown preset."""
    preset = section.get("preset", AlgorithmSection.model_fields["preset"].default)
    return {**PRESETS[preset].values, **(more or {}), **section, "preset": preset}
