"""The base algorithm as a row over independent parts: advantage, ratio, surrogate, aggregation, KL, and what surrounds them.

The names in each list are those of the table that implements them: ``trainer.advantages.estimators``,
``trainer.objectives.ratio``, ``.surrogate``, ``.aggregate``, ``.kl`` and ``.mismatch``.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from pydantic import model_validator

from trainer.contract.settings import Section, setting

AdvantageName = Literal[
    "group_zscore",
    "batch_zscore",
    "group_mean",
    "leave_one_out",
    "length_weighted",
    "reinforce",
    "whitened_return",
    "whitened_group_mean",
    "gae",
]
GROUP_ADVANTAGES: frozenset[str] = frozenset(
    {"group_zscore", "batch_zscore", "group_mean", "leave_one_out", "length_weighted", "whitened_group_mean"}
)
"""Advantages that compare the rollouts of one prompt, so that they need two or more."""
TOKEN_ADVANTAGES: frozenset[str] = frozenset({"whitened_return", "whitened_group_mean", "gae"})
"""Advantages that differ along a sequence."""
SurrogateName = Literal["clip", "cispo", "reinforce", "sapo", "vespo"]
RatioName = Literal["token", "sequence", "sequence_token", "sequence_sum"]
AggregationName = Literal[
    "seq-mean-token-mean", "token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "token-sum"
]
KlName = Literal["k1", "k2", "k3", "k1+", "k3+"]
MismatchName = Literal["auto", "off", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]

_advantage = partial(setting, part="Advantage", advanced=True)
_value = partial(setting, part="Value head", advanced=True)
_ratio = partial(setting, part="Ratio and surrogate", advanced=True)
_aggregation = partial(setting, part="Aggregation", advanced=True)
_kl = partial(setting, part="KL to the base", advanced=True)
_entropy = partial(setting, part="Entropy", advanced=True)
_trained = partial(setting, part="What is trained", advanced=True)
_steps = partial(setting, part="Steps", advanced=True)


class AlgorithmSection(Section):
    """The base algorithm: a row over independent parts. ``preset`` fills what is not given (contract/presets.py)."""

    preset: str = setting("grpo", "Base algorithm", "A named row of defaults; every field below may differ from it.")
    prompts_per_iteration: int = setting(32, "Prompts per iteration", "Distinct prompts drawn.", ge=1, le=65536)
    num_generations: int = setting(16, "Rollouts per prompt", "Group size G.", ge=1, le=4096)

    # Advantage
    advantage: AdvantageName = _advantage(
        "group_zscore",
        "Advantage",
        "In the group: (R − mean)/(std + ε), the same with the batch's std, R − mean, R − mean of the others, R − mean "
        "weighted by length. Or R − a baseline; returns whitened over the batch's tokens, with or without the group's "
        "mean taken off first; or GAE with a value head.",
    )
    std_unbiased: bool = _advantage(True, "Unbiased std", "Divide by G − 1.")
    adv_eps: float = _advantage(1e-6, "Advantage ε", "Added to the std.", ge=0, le=1)
    baseline: Literal["none", "moving", "batch"] = _advantage(
        "moving",
        "Baseline",
        "Of the advantage 'reinforce': nothing, a moving average of earlier iterations, or the mean of the batch.",
    )
    baseline_decay: float = _advantage(0.9, "Baseline decay", "β of the moving average.", ge=0, lt=1)
    gamma: float = _advantage(1.0, "Discount γ", "Per trained token, of 'whitened_return' and 'gae'.", ge=0, le=1)
    gae_lambda: float = _advantage(0.95, "GAE λ", "1: Monte-Carlo returns; 0: one step.", ge=0, le=1)

    # Value head
    value_coef: float = _value(0.1, "Value loss", "Weight of the value head's loss.", ge=0, le=100)
    value_clip: float | None = _value(
        0.2, "Value clip", "How far a value may move from the old one; empty: unlimited.", gt=0
    )
    value_learning_rate: float | None = _value(
        None, "Value learning rate", "Of the value head; empty: the policy's.", ge=0, le=1
    )

    # Ratio and surrogate
    surrogate: SurrogateName = _ratio(
        "clip",
        "Surrogate",
        "PPO clip, CISPO (stopped, capped ratio), plain log-prob, SAPO (sigmoid instead of a clip) or VESPO (smooth "
        "weight of the sequence's ratio).",
    )
    ratio: RatioName = _ratio(
        "token",
        "Ratio level",
        "Token ratio; the sequence's geometric mean (GSPO); the same with a gradient per token (GSPO-token); or the "
        "sequence's product.",
    )
    epsilon: float = _ratio(0.2, "Clip below", "1 − ε is the lower bound of the ratio.", ge=0, le=1)
    epsilon_high: float = _ratio(0.2, "Clip above", "1 + ε_high is the upper bound of the ratio.", ge=0, le=100)
    dual_clip: float | None = _ratio(None, "Dual clip", "Bounds the loss at −A·c where A < 0.", gt=1)
    cispo_cap: float | None = _ratio(None, "CISPO cap", "Largest ratio that CISPO uses; empty: 1 + ε_high.", gt=0)
    cispo_floor: float = _ratio(0.0, "CISPO floor", "Smallest ratio that CISPO uses; 0: no bound.", ge=0)
    off_policy_kl: float | None = _ratio(
        None,
        "Off-policy limit",
        "Sequences with A < 0 whose mean log-ratio sampler/policy exceeds this are left out; empty: none are.",
        unit="nats/token",
        ge=0,
    )
    top_entropy: float = _ratio(
        1.0,
        "High-entropy share",
        "Share of the batch's tokens, those with the highest entropy, whose policy term counts.",
        gt=0,
        le=1,
    )
    mismatch: MismatchName = _ratio(
        "auto",
        "Sampler correction",
        "Weights the policy term by the ratio trainer/sampler, of each token or of the sequence; outside the bounds the "
        "weight is cut to the bound (truncate) or 0 (mask). auto: token_truncate with a staleness, else sequence_mask with "
        "vLLM (TRL's default), else off, because the torch sampler computes what the trainer does.",
    )
    mismatch_min: float | None = _ratio(None, "Correction, least", "Lower bound of the weight; empty: none.", ge=0)
    mismatch_max: float | None = _ratio(3.0, "Correction, most", "Upper bound of the weight; empty: none.", gt=0)

    # Aggregation
    aggregation: AggregationName = _aggregation(
        "seq-mean-token-mean",
        "Aggregation",
        "How token losses become one number; '…-norm' divides by the longest answer as a constant.",
    )
    count_empty: bool = _aggregation(
        False, "Count empty sequences", "Sequences without a trained token count in the mean over sequences, as in TRL."
    )

    # KL to the base
    kl_coef: float = _kl(0.0, "KL coefficient β", "Weight of the KL to the base.", ge=0, le=10, advanced=False)
    kl_place: Literal["loss", "reward"] = _kl(
        "loss", "KL placed in", "The loss, or each token's reward (then k1 is the right estimator)."
    )
    kl_estimator: KlName = _kl(
        "k3",
        "KL estimator",
        "k1 has no gradient on average as a loss; '+' has the value of the estimator and the gradient of k2.",
    )
    kl_ratio: bool = _kl(
        False, "KL times ratio", "Weights the KL in the loss by the ratio (DeepSeek-V3.2; TRL's default)."
    )
    kl_target: float | None = _kl(
        None,
        "KL target",
        "Moves β by up to 20 % × sequences/horizon an iteration towards this KL; empty: β is fixed.",
        unit="nats/token",
        gt=0,
    )
    kl_horizon: int = _kl(10_000, "KL horizon", "Of the adaptive β; larger is slower.", unit="sequences", ge=1)
    measure_kl: bool = _kl(
        True,
        "Measure KL to the base",
        "Where β is 0: on the rollouts of iterations that validate. Keeps the base model in memory.",
    )

    # Entropy
    entropy_coef: float = _entropy(
        0.0, "Entropy bonus", "Weight of the mean token entropy.", ge=0, le=10, advanced=False
    )
    entropy_target: float | None = _entropy(
        None,
        "Entropy target",
        "Raises the bonus by the step while entropy is at or below this, lowers it above, where it is not applied; "
        "empty: the bonus is fixed.",
        unit="nats",
        ge=0,
    )
    entropy_step: float = _entropy(0.005, "Entropy step", "Change of the bonus a step.", ge=0, le=1)
    entropy_min: float = _entropy(0.0, "Least bonus", "Of the adaptive bonus.", ge=0, le=10)
    entropy_max: float = _entropy(1.0, "Largest bonus", "Of the adaptive bonus.", ge=0, le=10)

    # What is trained
    zero_variance: Literal["keep", "drop", "refill"] = _trained(
        "keep",
        "Groups without a signal",
        "Whose rollouts are all right or all wrong: kept (no advantage, but they count in means and in the KL), left "
        "out, or replaced by sampling more prompts (dynamic sampling).",
    )
    max_rounds: int = _trained(
        10, "Sampling rounds", "At most, when groups are replaced; then what there is is trained.", ge=1, le=1000)  # fmt: skip
    overlong_buffer: int = _trained(
        0,
        "Overlong buffer",
        "Last tokens before the limit in which the reward falls by up to the factor (soft overlong punishment); 0: off.",
        unit="tokens",
        ge=0,
    )
    overlong_factor: float = _trained(
        1.0, "Overlong factor", "Largest punishment. 0.5 on rewards of 0 and 1 is the paper's 1 on −1 and 1.", gt=0,
        le=100)  # fmt: skip
    mask_truncated: bool = _trained(
        False, "Mask truncated", "Truncated answers keep their reward in the group but leave the loss."
    )

    # Steps
    num_iterations: int = _steps(1, "Epochs per batch", "Passes over one batch of rollouts (μ).", ge=1, le=64)
    minibatches: int = _steps(1, "Mini-batches", "Optimiser steps per pass; prompts are never split.", ge=1, le=1024)
    staleness: int = _steps(
        0,
        "Staleness",
        "A batch is drawn with the weights of this many updates before it is trained on, as by a generator that works while "
        "the trainer does; 0: on-policy. Needs a sampler correction.",
        unit="updates",
        ge=0,
        le=8,
    )
    microbatch_tokens: int = _steps(
        16384, "Micro-batch", "Tokens per forward pass; does not change the result.", unit="tokens", ge=64
    )

    @model_validator(mode="after")
    def _bounds(self) -> AlgorithmSection:
        pairs = (
            ("mismatch_min", self.mismatch_min, "mismatch_max", self.mismatch_max),
            ("cispo_floor", self.cispo_floor, "cispo_cap", self.cispo_cap),
            ("entropy_min", self.entropy_min, "entropy_max", self.entropy_max),
        )
        for low_name, low, high_name, high in pairs:
            if low is not None and high is not None and low > high:
                raise ValueError(f"{low_name} {low} is above {high_name} {high}; expected at most that")
        return self

    def correction(self, engine: Literal["torch", "vllm"]) -> MismatchName:
        """The sampler correction on an engine: never ``auto``."""
        if self.mismatch != "auto":
            return self.mismatch
        if self.staleness:
            return "token_truncate"
        return "sequence_mask" if engine == "vllm" else "off"

    @property
    def needs_reference(self) -> bool:
        """Whether the KL to the base is part of what is optimised."""
        return self.kl_coef > 0
