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
        "checker/failed",
        "Failed checks",
        "share",
        "Completions on which the checker raised, ran out of time or crashed; each counts as wrong.",
        True,
    ),
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
    Metric("cispo_clip_ratio", "Capped ratios", "share", "Trained tokens whose ratio CISPO cut to a bound.", True),
    Metric("kl_coef", "KL coefficient β", "", "Of the iteration; moves where a KL target is set."),
    Metric("entropy_coef", "Entropy bonus", "", "The adaptive coefficient after the last optimiser step."),
    Metric(
        "value/loss", "Value loss", "", "½ of the larger square of the clipped value loss, mean over trained tokens."
    ),
    Metric("value/clip_ratio", "Clipped values", "share", "Trained tokens where the value's clip acted.", True),
    Metric(
        "value/explained_variance",
        "Explained variance",
        "",
        "1 − Var[return − value]/Var[return] before the update: 1 is perfect, 0 or less no better than a constant.",
    ),
    Metric("dapo/rounds", "Sampling rounds", "", "How often prompts were drawn until enough groups had a signal."),
    Metric(
        "dapo/starved", "Missing groups", "share", "Of the groups wanted, those that sampling could not find.", True
    ),
    Metric("rewards/overlong/mean", "Overlong punishment", "", "Mean over completions, before its factor."),
    Metric(
        "sampling/sampling_logp_difference/mean",
        "Sampler/trainer gap",
        "nats",
        "Mean |log-prob of the sampler − log-prob of the trainer| over sampled tokens.",
    ),
    Metric(
        "sampling/sampling_logp_difference/max", "Largest sampler/trainer gap", "nats", "The largest such difference."
    ),
    Metric("sampling/kl/k1", "KL sampler to trainer (k1)", "nats/token", "Mean of log π_sampler − log π_trainer."),
    Metric(
        "sampling/kl/k3",
        "KL sampler to trainer",
        "nats/token",
        "k3 estimate of KL(sampler‖trainer), mean over sampled tokens; never negative.",
    ),
    Metric(
        "sampling/effective_sample_size",
        "Effective sample size",
        "share",
        "(Σw)²/(n·Σw²) of the weights w = π_trainer/π_sampler over sampled tokens; 1 where both agree.",
        True,
    ),
    Metric(
        "sampling/outside_kept",
        "Drawn outside the kept tokens",
        "share",
        "Sampled tokens that the trainer's own top-k, top-p or min-p would not have kept: at a border, by rounding.",
        True,
    ),
    Metric(
        "sampling/importance_sampling_ratio/mean",
        "Sampler correction",
        "",
        "Mean weight trainer/sampler of the correction, over trained tokens or over sequences; 1 where both agree.",
    ),
    Metric("sampling/importance_sampling_ratio/min", "Least sampler correction", "", "The smallest such weight."),
    Metric("sampling/importance_sampling_ratio/max", "Largest sampler correction", "", "The largest such weight."),
    Metric(
        "sampling/importance_sampling_ratio/outside",
        "Corrected at a bound",
        "share",
        "Weights that were cut to a bound or set to 0.",
        True,
    ),
    Metric(
        "staleness/mean",
        "Staleness",
        "updates",
        "Updates between the weights that drew a token and those that train on it, mean over the iteration's tokens.",
    ),
    Metric("staleness/max", "Largest staleness", "updates", "Of any token of the iteration."),
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
    Metric("squeeze/top1_mass", "Likeliest rollout", "share", "Mass of a prompt's likeliest sampled rollout.", True),
    Metric("squeeze/top5_mass", "Five likeliest rollouts", "share", "Mass of a prompt's five likeliest ones.", True),
    Metric("squeeze/unseen_mass", "Unseen mass", "share", "Mass that no rollout of the prompt has.", True),
    Metric("squeeze/neff", "Effective rollouts", "", "1/Σp² over trajectories, from the rollouts' own probabilities."),
    Metric(
        "squeeze/neff_group",
        "Evenness in the group",
        "share",
        "1/Σw² over a prompt's distinct rollouts, over their number; w is their softmax. For answers of any length.",
        True,
    ),
    Metric("squeeze/log_n1", "Trajectory entropy", "nats", "Mean of −log p of the rollouts."),
    Metric("squeeze/mass_wrong_top", "Top wrong answer", "share", "Samples with the most frequent wrong answer.", True),
    Metric(
        "squeeze/answer_entropy",
        "Answer entropy",
        "nats",
        "Over a problem's answers, bias taken off; of problems whose answers are covered to at least 80 %.",
    ),
    Metric("squeeze/answer_coverage", "Answer coverage", "share", "Good–Turing: mass of the answers seen.", True),
    Metric("squeeze/answer_problems", "Problems behind the entropy", "share", "Problems covered well enough.", True),
    Metric("squeeze/ceiling_now", "Solved now", "share", "Problems solved at least once in this validation.", True),
    Metric("squeeze/ceiling_cum", "Ever solved", "share", "Problems solved in any validation so far.", True),
    Metric("squeeze/forgotten", "Solved before, not now", "share", "To be read beside its null.", True),
    Metric(
        "squeeze/forgotten_null",
        "… by resampling alone",
        "share",
        "What it would be if the model had never changed.",
        True,
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
    Metric("hapo/tau", "Threshold τ", "", "Success probability below which a problem gets help."),
    Metric("hapo/gate_open_rate", "Gate open", "share", "Groups that need help.", True),
    Metric("hapo/injected", "Injected", "share", "Groups with a teacher's answer in place of a rollout.", True),
    Metric("hapo/no_teacher", "No teacher", "share", "Groups that need help and for which there is no answer.", True),
    Metric("hapo/posterior_mean", "Estimated success", "share", "Mean of the drawn problems' posterior means.", True),
    Metric("hapo/collapsed_after", "Dead groups after", "share", "Groups without variance, after the injection.", True),
    Metric("hapo/offpolicy_grad_mass", "Off-policy share", "share", "Share of |A·weight| on a teacher's tokens.", True),
    Metric(
        "hapo/teacher_token_prob",
        "Probability of the teacher's tokens",
        "share",
        "Mean of the policy's probability of them; undefined without an injection.",
        True,
    ),
    Metric("fgrpo/g_mean", "Focal weight", "", "(1 − success rate)^γ, mean over prompts.", True),
    Metric("fgrpo/g_active_mean", "Focal weight (mixed)", "", "The same over prompts with mixed outcomes.", True),
    Metric("fgrpo/update_scale", "Advantages left", "share", "Σ|gA| / Σ|A|.", True),
    Metric("fgrpo/active_fraction", "Mixed groups", "share", "Prompts with right and wrong rollouts.", True),
    Metric(
        "fgrpo/tail_miss_est",
        "Tail missed",
        "share",
        "(1 − τ)^N − (μ̂ − τ)^N − (1 − μ̂)^N with τ = μ̂/10, mean over prompts with mixed outcomes.",
        True,
    ),
    Metric("fgrpo/success_hist", "Success rates", "share", "Of the iteration's prompts."),
    Metric("mcpo/mastered_fraction", "Mastered", "share", "Prompts whose rollouts are all right.", True),
    Metric(
        "mcpo/majority_fraction", "Mostly right", "share", "Prompts with more than half of them right, not all.", True
    ),
    Metric("mcpo/failed_fraction", "All wrong", "share", "Prompts without a right rollout.", True),
    Metric(
        "mcpo/query_weight_majority", "Weight when mostly right", "", "Mean |A|/2 over prompts that are mostly right."
    ),
    Metric("mcpo/hkl", "Hinged KL", "nats/token", "Mean of φ over mastered prompts' tokens; 0 within the budget."),
    Metric("mcpo/hinge_active_fraction", "Outside the budget", "share", "Of mastered prompts' tokens.", True),
    Metric("mcpo/mean_abs_drift_mastered", "Drift", "nats/token", "Mean |log π − log π_old| on mastered prompts."),
    Metric("mcpo/one_step_retention", "Still mastered", "share", "Of prompts mastered before the last update.", True),
    Metric("otb/w_mean", "Energy of a token", "", "Mean ‖e_a − π‖²: 1 − 2π_a + Σπ², between 0 and 2."),
    Metric("otb/energy_mean", "Energy so far", "", "Σ of the tokens' energies up to each token, mean over tokens."),
    Metric("otb/energy_final", "Energy of an answer", "", "Σ of the tokens' energies, mean over answers."),
    Metric("otb/baseline_minus_mean", "Baseline − group mean", "", "Mean over tokens; 0 where all weights are equal."),
    Metric(
        "otb/zero_tail_tokens", "Alone in its group", "share", "Tokens at which one rollout alone still runs.", True
    ),
    Metric("otb/baseline_t", "Baseline by position", "", "Mean baseline at each token of the policy."),
    Metric("variance_proxy/total_power", "Power", "", "Mean over answers of energy × squared mean advantage."),
    Metric("variance_proxy/signal_strength", "Signal", "", "Squared norm of the gradient, mean norm of the steps."),
    Metric("variance_proxy/pure_noise", "Noise", "", "(power − signal)/(answers − 1), at least 0."),
    Metric("quatro/lambda_mean", "Mean λ", "", "Over prompts with mixed rewards, after the floor."),
    Metric("quatro/lambda_min", "Least λ", "", "Over prompts with mixed rewards, after the floor."),
    Metric("quatro/lambda_max", "Largest λ", "", "Over prompts with mixed rewards."),
    Metric("quatro/lambda_vs_p", "λ by success", "", "A point a prompt with mixed rewards."),
    Metric("quatro/kl_realised", "KL realised", "nats", "Mean ρ log ρ − ρ + 1 of the rollouts' ratios."),
    Metric("quatro/kl_budget_ratio", "KL over budget", "", "Realised KL over ε."),
    Metric("quatro/stabiliser_share", "Share of the pull", "", "Σ |λρ log ρ| over Σ |c|; may exceed 1."),
    Metric("quatro/outside_fraction", "Beyond the target", "share", "Rollouts with |log ρ| above |log r*|.", True),
    Metric("quatro/dual_at_bound", "λ at its bound", "share", "Of prompts with mixed rewards.", True),
    Metric(
        "isgrpo/kappa", "Heterogeneity κ", "", "(mean σ)²/mean σ² over the pool; undefined where no reward spreads."
    ),
    Metric("isgrpo/sigma_mean", "Mean σ", "", "√(p(1 − p)) by the posterior of earlier visits, mean over the pool."),
    Metric("isgrpo/sigma_cv", "Variation of σ", "", "Its std over its mean."),
    Metric("isgrpo/q_entropy", "Evenness of draws", "share", "Entropy of q over log n.", True),
    Metric("isgrpo/weight_max", "Largest ω", "", "Of the iteration's prompts, as used."),
    Metric("isgrpo/weight_clipped", "Held weights", "share", "Prompts whose ω was above the largest.", True),
    Metric("isgrpo/zero_variance_draws", "Wasted draws", "share", "Prompts whose rewards were all alike.", True),
    Metric("pipo/mu", "Mean reward", "", "Of all rollouts of the iteration, before any filter."),
    Metric("pipo/mu_his", "Expected by the window", "", "Mean of the window's means, or where their line leads."),
    Metric("pipo/sigma_his", "Spread of the window", "", "Std of the window's means, or around their line."),
    Metric("pipo/xi", "Progress ξ", "", "Held to ±5."),
    Metric("pipo/phi", "Weight φ(ξ)", "", "Of the second update: ξ, or λξ where it is negative."),
    Metric("pipo/negative_steps", "Undone", "share", "Whether the last update was weakly undone.", True),
    Metric("pipo/retro_clip_fraction", "Clipped looking back", "share", "Tokens without gradient there.", True),
    Metric("pipo/retro_kl", "Drift", "nats/token", "k3 from the policy that sampled the earlier batch."),
    Metric("heapa/pool_size", "Pool", "prompts", "Prompts that can be drawn next."),
    Metric("heapa/low", "Hard side", "prompts", "Below the border."),
    Metric("heapa/high", "Easy side", "prompts", "Above the border."),
    Metric("heapa/cold", "Without a reward", "prompts", "Not drawn yet."),
    Metric("heapa/boundary_low", "Easiest hard", "", "Highest reward of the hard side."),
    Metric("heapa/boundary_high", "Hardest easy", "", "Lowest reward of the easy side."),
    Metric("heapa/sampled_reward_hist", "Rewards of drawn prompts", "", "As they were known before the draw."),
    Metric("heapa/aug_accepted", "New variants", "prompts", "That joined the pool."),
    Metric(
        "heapa/aug_valid", "Accepted variants", "share", "Of those tried: solvable, new, of the training split.", True
    ),
    Metric("heapa/reinserted", "Came back", "prompts", "From the archive."),
    Metric("heapa/evicted", "Thrown out", "prompts", "Because the pool was full."),
    Metric("heapa/refresh_delta", "Change by variants", "", "Mean |change| of the archive's rewards."),
    Metric("heapa/variant_share", "Variants drawn", "share", "Of the iteration's prompts.", True),
    Metric("heapa/variant_accuracy", "Variants solved", "share", "Of their rollouts.", True),
    Metric("agrae/omega", "Progress ω", "share", "Mean outcome of the batch; smoothed where asked for.", True),
    Metric("agrae/attenuation", "Factor on positives", "", "min(1, ω/α), on positive advantages.", True),
    Metric("agrae/adv_sum", "Σ A of a group", "", "Mean over groups; not zero on purpose."),
    Metric("agrae/pos_mass", "Positive part", "", "Sum of a group's positive advantages, mean over groups."),
    Metric("agrae/neg_mass", "Negative part", "", "Size of the sum of a group's negative ones, mean over groups."),
    Metric(
        "longact/saliency_max_over_median_q",
        "Salient query channels",
        "",
        "Largest saliency of a query channel over the median one, mean over layers.",
    ),
    Metric(
        "longact/saliency_max_over_median_k",
        "Salient key channels",
        "",
        "Largest saliency of a key channel over the median one, mean over layers.",
    ),
    Metric("longact/selected_energy", "Energy chosen", "share", "Share of Σs² in the chosen channels.", True),
    Metric("longact/mask_jaccard", "Overlap of masks", "share", "|A ∩ B| / |A ∪ B| with the masks before.", True),
    Metric("longact/grad_kept_frac_q", "Query gradient kept", "share", "Norm after the mask over that before.", True),
    Metric("longact/grad_kept_frac_k", "Key gradient kept", "share", "Norm after the mask over that before.", True),
    Metric("longact/rows_updated", "Rows trained", "rows", "Of the masked parameters, in an optimiser step."),
    Metric("longact/masked_row_drift", "Drift of masked rows", "", "Σ|Δw| of the rows left out; exactly 0."),
    Metric("longact/saliency", "Salient channels by layer", "", "Largest saliency over the median one."),
    Metric("longact/overlap", "Overlap of masks by layer", "share", "With the masks before.", True),
    *(
        Metric(
            f"eval/accuracy@{name}", f"Accuracy, prompts to {name}", "share", "Mean c/n of validation problems.", True
        )
        for name in ("64", "128", "256", "512", "1k", "2k", "4k", "8k", "longer")
    ),
    Metric(
        "tw/eta",
        "Acceleration η",
        "share",
        "1 − critical path/tokens, mean over rollouts; 0 where the form is broken.",
        True,
    ),
    Metric(
        "tw/critical_path", "Critical path", "tokens", "Tokens one after the other: of threads only the longest counts."
    ),
    Metric("tw/total_tokens", "All tokens", "tokens", "Of a rollout as the model saw it, threads one after the other."),
    Metric(
        "tw/speedup",
        "Speed-up",
        "×",
        "Tokens of unforked rollouts over the critical path of forked ones of one prompt.",
    ),
    Metric("tw/with_parallel_frac", "Forked", "share", "Rollouts that forked.", True),
    Metric("tw/blocks", "Blocks", "", "Parallel blocks in a rollout."),
    Metric("tw/threads_per_block", "Threads per block", "", "Undefined where nothing forked."),
    Metric("tw/accel_reward", "Bonus", "", "ρ · min(η, η_max) of right answers, mean over rollouts."),
    Metric("tw/format_ok", "Well formed", "share", "Blocks are closed, and all threads are the orchestrator's.", True),
    Metric("tw/units_per_traj", "Pieces", "", "Pieces of a rollout that are trained."),
    Metric(
        "tw/fork_rate/independent",
        "Forked, independent",
        "share",
        "Rollouts that forked, on problems with independent parts.",
        True,
    ),
    Metric(
        "tw/fork_rate/dependent",
        "Forked, dependent",
        "share",
        "Rollouts that forked, on problems whose steps need each other.",
        True,
    ),
    Metric("rollouts/length", "Completion lengths", "tokens", "Sampled tokens of the iteration's completions."),
    Metric("rollouts/reward", "Rewards", "", "Training rewards of the iteration's completions that were judged."),
    Metric("rollouts/length_reward", "Length and reward", "", "Each completion of the iteration that was judged."),
    Metric("rollouts/examples", "Examples", "", "Completions chosen evenly over the iteration's batch."),
    Metric("rollouts/longest", "Longest completion", "", "In full, with its prompt."),
    Metric("validation/success", "Success by problem", "share", "c/n of each validation problem.", True),
    Metric(
        "validation/answer_mass", "Answer mass", "share", "Share of a problem's samples for each of its answers.", True
    ),
    Metric("test/success", "Success by test problem", "share", "c/n of each test problem.", True),
    Metric(
        "test/answer_mass", "Answer mass (test)", "share", "Share of a problem's samples for each of its answers.", True
    ),
]
METRICS: dict[str, Metric] = {m.key: m for m in _ROWS}

ALIASES: dict[str, str] = {
    "actor/entropy": "entropy",
    "actor/grad_norm": "grad_norm",
    "actor/lr": "learning_rate",
    "actor/kl_loss": "kl",
    "critic/vf_loss": "value/loss",
    "critic/vf_clipfrac": "value/clip_ratio",
    "critic/vf_explained_var": "value/explained_variance",
    "critic/rewards/mean": "reward",
    "response_length/mean": "completions/mean_length",
    "response_length/clip_ratio": "completions/clipped_ratio",
    "val/accuracy": "eval/accuracy",
}


def describe(key: str) -> Metric:
    """The metric of that key, or a plain one that says nothing more than its name."""
    return METRICS.get(ALIASES.get(key, key)) or Metric(key, key, "", "")
