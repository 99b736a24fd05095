"""Every metric's name, unit and meaning, once: TRL's name where TRL has one.

``describe`` is what a chart's hover and the definitions drawer show. A key not listed here is drawn as it is.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """``unit`` is shown in headers; ``rate`` metrics are drawn on 0–1."""

    key: str
    title: str
    unit: str
    help: str
    rate: bool = False


_ROWS = [
    Metric(
        "reward", "Reward", "", "Mean reward of the iteration's training rollouts; not accuracy on held-out problems."
    ),
    Metric("reward_std", "Reward std", "", "Mean over groups of the reward's unbiased standard deviation."),
    Metric(
        "frac_reward_zero_std",
        "Zero-variance groups",
        "share",
        "Groups whose rewards are all equal: no learning signal.",
        True,
    ),
    Metric("accuracy/train", "Training accuracy", "share", "Correct share of the iteration's training rollouts.", True),
    Metric("eval/accuracy", "Validation accuracy", "share", "Mean over validation problems of c/n.", True),
    Metric(
        "eval/accuracy_untruncated",
        "Accuracy without truncated",
        "share",
        "Correct share among validation samples that ended by themselves.",
        True,
    ),
    Metric("eval/truncated", "Truncated (validation)", "share", "Validation samples that hit the token limit.", True),
    Metric("eval/cover@0.1", "cover@.1", "share", "Validation problems with c/n of at least .1.", True),
    Metric("eval/cover@0.5", "cover@.5", "share", "Validation problems with c/n of at least .5.", True),
    Metric("eval/cover@0.9", "cover@.9", "share", "Validation problems with c/n of at least .9.", True),
    Metric(
        "entropy",
        "Token entropy",
        "nats",
        "Exact softmax entropy at the sampling temperature, mean over trained tokens.",
    ),
    Metric(
        "eval/entropy", "Token entropy (validation)", "nats", "Exact, mean over the tokens of the validation samples."
    ),
    Metric("kl", "KL to base", "nats/token", "k3 estimate of KL(policy‖base), mean over trained tokens."),
    Metric("loss", "Loss", "", "Sum of all terms, divided by the global counts of the optimiser step."),
    Metric("grad_norm", "Gradient norm", "", "Global L2 norm before clipping."),
    Metric("learning_rate", "Learning rate", "", "Of the last optimiser step."),
    Metric(
        "completions/mean_length", "Mean length", "tokens", "Sampled tokens per completion, end-of-sequence included."
    ),
    Metric("completions/min_length", "Shortest", "tokens", "Shortest completion of the iteration."),
    Metric("completions/max_length", "Longest", "tokens", "Longest completion of the iteration."),
    Metric("completions/clipped_ratio", "Truncated", "share", "Completions that hit the token limit.", True),
    Metric(
        "clip_ratio/low_mean",
        "Clipped below",
        "share",
        "Trained tokens with A < 0 and ratio < 1 − ε: no gradient.",
        True,
    ),
    Metric(
        "clip_ratio/high_mean",
        "Clipped above",
        "share",
        "Trained tokens with A > 0 and ratio > 1 + ε_high: no gradient.",
        True,
    ),
    Metric(
        "sampling/sampling_logp_difference/mean",
        "Sampler/trainer gap",
        "nats",
        "Mean |log-prob of the sampler − log-prob of the trainer| over sampled tokens.",
    ),
    Metric(
        "sampling/sampling_logp_difference/max", "Largest sampler/trainer gap", "nats", "The largest such difference."
    ),
    Metric("step_time", "Iteration time", "s", "Wall seconds of the iteration, evaluation apart."),
    Metric("time/rollout", "Rollout", "s", "Wall seconds spent sampling."),
    Metric("time/update", "Update", "s", "Wall seconds spent on forward, backward and optimiser."),
    Metric("num_tokens", "Tokens", "tokens", "Prompt and completion tokens seen in training so far."),
    Metric(
        "squeeze/neff_correct",
        "Effective correct trajectories",
        "",
        "1/Σp² over distinct correct solutions, on problems with c ≥ 2 now and at the start.",
    ),
    Metric("squeeze/neff_correct_start", "… at the start", "", "The same, for the start, on the same problems."),
    Metric(
        "squeeze/neff_problems", "Problems behind it", "problems", "How many problems have c ≥ 2 now and at the start."
    ),
    Metric(
        "squeeze/stuck_fraction", "Stuck problems", "share", "A wrong answer holds at least 90 % of the samples.", True
    ),
    Metric(
        "headroom/kappa_max",
        "Headroom left",
        "share",
        "(pass@n − pass@1)/(1 − (1 − pass@1)ⁿ − pass@1): share of the resampling headroom left. Not a squeezing index.",
        True,
    ),
    Metric(
        "sft/accuracy",
        "Greedy token accuracy",
        "share",
        "Target tokens that are the model's most likely next token.",
        True,
    ),
    Metric("sps/phase", "SPS phase", "", "0 RL, 1 inverse RL."),
    Metric("sps/irl_kl", "IRL loss", "nats", "KL(q‖p) over the demonstrations of a prompt, mean over used prompts."),
    Metric(
        "sps/demo_distinct", "Distinct demonstrations", "per prompt", "Mean number M of distinct admissible rollouts."
    ),
    Metric("sps/demo_correct", "Correct demonstrations", "per prompt", "Mean number of distinct correct ones."),
    Metric(
        "sps/skipped_prompts",
        "Skipped prompts",
        "share",
        "Prompts without two demonstrations or stopped by the gate.",
        True,
    ),
    Metric(
        "sps/target_wrong_mass",
        "Target on wrong answers",
        "share",
        "Mass the target puts on wrong demonstrations.",
        True,
    ),
    Metric("sps/p_neff", "Effective demonstrations", "", "1/Σp² of the induced distribution, mean over used prompts."),
    Metric("sps/irl_grad_norm", "IRL gradient norm", "", "Global L2 norm of the inverse-RL step before clipping."),
    Metric("sps/phase_kl", "KL in the phase", "nats/token", "k3 to the policy at the start of the inverse-RL phase."),
]
METRICS: dict[str, Metric] = {m.key: m for m in _ROWS}

ALIASES: dict[str, str] = {
    "actor/entropy": "entropy",
    "actor/grad_norm": "grad_norm",
    "actor/lr": "learning_rate",
    "actor/kl_loss": "kl",
    "critic/rewards/mean": "reward",
    "response_length/mean": "completions/mean_length",
    "response_length/clip_ratio": "completions/clipped_ratio",
    "val/accuracy": "eval/accuracy",
}


def describe(key: str) -> Metric:
    """The metric of that key, or a plain one that says nothing more than its name."""
    return METRICS.get(ALIASES.get(key, key)) or Metric(key, key, "", "")
