"""The run page's charts as data. A method adds its own `Chart` rows; no page code knows a metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Chart:
    """One figure over iterations: which series, and what it helps to decide (``help``).

    ``series`` are metric keys; a key that a run never logs is left out, a chart without any is not shown.
    """

    slug: str
    title: str
    series: tuple[str, ...]
    help: str
    unit: str = ""
    rate: bool = False
    section: Literal["overview", "method", "optimisation", "system"] = "overview"


BASE_CHARTS: tuple[Chart, ...] = (
    Chart(
        "reward",
        "Reward and held-out accuracy",
        ("reward", "eval/accuracy"),
        "A reward that rises while accuracy does not is being gamed.",
        rate=True,
    ),
    Chart("entropy", "Token entropy", ("entropy", "eval/entropy"), "A steady fall towards 0 is a collapse.", "nats"),
    Chart(
        "lengths",
        "Completion length",
        ("completions/mean_length", "completions/min_length", "completions/max_length"),
        "Drifting lengths often mean that the reward pays for length.",
        "tokens",
    ),
    Chart(
        "truncation",
        "Truncation and dead groups",
        ("completions/clipped_ratio", "frac_reward_zero_std"),
        "Truncated answers count as wrong; groups without variance teach nothing.",
        "share",
        True,
    ),
    Chart("kl", "KL to the base", ("kl",), "How far the policy has moved.", "nats/token"),
    Chart(
        "concentration",
        "Concentration of the rollouts",
        ("squeeze/top1_mass", "squeeze/top5_mass", "squeeze/unseen_mass", "squeeze/neff_group"),
        "When the likeliest rollouts hold nearly all mass, probability is squeezed onto them.",
        "share",
        True,
    ),
    Chart(
        "effective",
        "Effective trajectories",
        ("squeeze/neff", "squeeze/neff_correct", "squeeze/neff_correct_start"),
        "The correct ones are compared on problems solved now and at the start: sharpening leaves them, squeezing does not.",
    ),
    Chart(
        "trajectory_entropy",
        "Entropy of trajectories and answers",
        ("squeeze/log_n1", "squeeze/answer_entropy"),
        "Of whole rollouts, and of the answers of a validation where they are covered well enough.",
        "nats",
    ),
    Chart(
        "ceilings",
        "Ceilings",
        ("squeeze/ceiling_now", "squeeze/ceiling_cum", "squeeze/forgotten", "squeeze/forgotten_null"),
        "What seems forgotten counts only as far as it exceeds what resampling alone explains.",
        "share",
        True,
    ),
    Chart("grad_norm", "Gradient norm", ("grad_norm",), "Spikes come before a collapse.", section="optimisation"),
    Chart(
        "clip",
        "Clip share",
        ("clip_ratio/low_mean", "clip_ratio/high_mean", "cispo_clip_ratio"),
        "Tokens whose gradient the clip removed.",
        "share",
        True,
        "optimisation",
    ),
    Chart(
        "coefficients",
        "Adaptive coefficients",
        ("kl_coef", "entropy_coef"),
        "What the controllers of KL and entropy have made of them.",
        section="optimisation",
    ),
    Chart(
        "value",
        "Value head",
        ("value/explained_variance", "value/clip_ratio"),
        "Near 0 the value head predicts nothing yet and PPO is REINFORCE with a constant.",
        section="optimisation",
    ),
    Chart("value_loss", "Value loss", ("value/loss",), "Of the value head.", section="optimisation"),
    Chart(
        "refill",
        "Dynamic sampling",
        ("dapo/rounds",),
        "Rising rounds mean that ever fewer problems are of a fitting difficulty.",
        "rounds",
    ),
    Chart(
        "correction",
        "Sampler correction",
        (
            "sampling/importance_sampling_ratio/min",
            "sampling/importance_sampling_ratio/mean",
            "sampling/importance_sampling_ratio/max",
        ),
        "Far from 1, sampler and trainer are different policies.",
        section="system",
    ),
    Chart(
        "loss",
        "Loss",
        ("loss",),
        "For supervised runs a measure of fit; for RL no sign of health.",
        section="optimisation",
    ),
    Chart(
        "sft_accuracy", "Token accuracy", ("sft/accuracy",), "Share of target tokens predicted first.", "share", True
    ),
    Chart("learning_rate", "Learning rate", ("learning_rate",), "Of the last optimiser step.", section="optimisation"),
    Chart(
        "coverage",
        "cover@τ",
        ("eval/cover@0.1", "eval/cover@0.5", "eval/cover@0.9"),
        "Share of problems solved at least that often.",
        "share",
        True,
    ),
    Chart(
        "headroom",
        "Resampling headroom left",
        ("headroom/kappa_max",),
        "How much more samples still pay; not a squeezing index.",
        "share",
        True,
    ),
    Chart(
        "gap",
        "Sampler against trainer",
        ("sampling/sampling_logp_difference/mean", "sampling/sampling_logp_difference/max"),
        "Both must compute the same log-probs.",
        "nats",
        section="system",
    ),
    Chart(
        "gap_kl",
        "KL sampler to trainer",
        ("sampling/kl/k3", "sampling/kl/k1"),
        "Rising, the sampler drifts away from what is trained: stale weights, or two engines that round differently.",
        "nats/token",
        section="system",
    ),
    Chart(
        "gap_weights",
        "What the gap costs",
        (
            "sampling/effective_sample_size",
            "sampling/importance_sampling_ratio/outside",
            "sampling/outside_kept",
        ),
        "An effective sample size of .5 means that half of the sampled tokens are lost to the gap.",
        "share",
        True,
        section="system",
    ),
    Chart(
        "staleness",
        "Staleness",
        ("staleness/mean", "staleness/max"),
        "How far the weights had moved on when a batch was trained.",
        "updates",
        section="system",
    ),
    Chart(
        "time",
        "Time per iteration",
        ("step_time", "time/rollout", "time/update"),
        "Where the time goes.",
        "s",
        section="system",
    ),
)
