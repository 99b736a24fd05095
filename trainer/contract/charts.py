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
    Chart("grad_norm", "Gradient norm", ("grad_norm",), "Spikes come before a collapse.", section="optimisation"),
    Chart(
        "clip",
        "Clip share",
        ("clip_ratio/low_mean", "clip_ratio/high_mean"),
        "Tokens whose gradient the clip removed.",
        "share",
        True,
        "optimisation",
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
        "time",
        "Time per iteration",
        ("step_time", "time/rollout", "time/update"),
        "Where the time goes.",
        "s",
        section="system",
    ),
)
