"""Every default of every base algorithm, once, with its source.

A preset is what `AlgorithmSection.preset` names: the fields a launcher does not give are filled from here. ``grpo`` is the
algorithm of the DeepSeekMath paper without its KL term's cost on by default; ``trl-…`` and ``verl-…`` reproduce those
trainers' own defaults, so that a run here can be held against a run there.
"""

from __future__ import annotations

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


PRESETS: dict[str, Preset] = {
    p.slug: p
    for p in [
        Preset(
            "grpo",
            "GRPO",
            "arXiv 2402.03300 (DeepSeekMath)",
            "Group z-score advantage, token ratio clipped at ±0.2, sequence-mean of token-means. The paper's KL weight "
            "is 0.04; it is 0 here, as in later practice, and one field away.",
            {"advantage": "group_zscore", "adv_eps": 1e-6, "aggregation": "seq-mean-token-mean"},
        ),
        Preset(
            "dr-grpo",
            "Dr. GRPO",
            "arXiv 2503.20783",
            "Centred rewards without the group's standard deviation, and a constant length in the denominator.",
            {"advantage": "group_mean", "aggregation": "seq-mean-token-sum-norm"},
        ),
        Preset(
            "rloo",
            "RLOO",
            "arXiv 2402.14740",
            "Leave-one-out baseline, plain log-prob surrogate, mean over sequences of the token sum.",
            {"advantage": "leave_one_out", "surrogate": "reinforce", "aggregation": "seq-mean-token-sum"},
        ),
        Preset(
            "trl-grpo",
            "GRPO as TRL's defaults",
            "TRL 1.16 GRPOConfig",
            "loss_type=dapo (mean over all tokens), ε on std 1e-4, β 0, 8 generations.",
            {"advantage": "group_zscore", "adv_eps": 1e-4, "aggregation": "token-mean", "num_generations": 8},
        ),
        Preset(
            "verl-grpo",
            "GRPO as verl's defaults",
            "verl 0.9 (adv_estimator=grpo)",
            "Mean over all tokens, dual clip at 3, ε on std 1e-6.",
            {"advantage": "group_zscore", "adv_eps": 1e-6, "aggregation": "token-mean", "dual_clip": 3.0},
        ),
    ]
}


def fill(section: dict[str, Any]) -> dict[str, Any]:
    """An algorithm section with the preset's values under what is given. Raises KeyError on an unknown preset."""
    preset = section.get("preset", AlgorithmSection.model_fields["preset"].default)
    return {**PRESETS[preset].values, **section, "preset": preset}
