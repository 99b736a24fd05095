"""HeaPA: prompts drawn at the border of what the policy can do, from a pool that grows (arXiv 2601.22448), over any base.

The rule: prompts lie in two heaps by their last mean reward, hard and easy, and are drawn at the border between the two, those
without a reward first. Each trained prompt makes a variant with another number, which joins the pool with its parent's reward;
when the pool runs short, what was trained comes back, its reward half its own and half its variants'.

Deviations: variants come from the task, which changes a number and checks what comes out, not from the policy's own writing
judged by a teacher model; so they are as hard as their parents (difficulty 1), are made at once, and nothing waits in a queue.
Tasks that know no variants run without. Sampling from the easy end ('easy_medium_mixed') is left out.
"""

from __future__ import annotations

from typing import Literal

from trainer.contract.charts import Chart
from trainer.contract.config import setting
from trainer.core.registry import MethodParams, MethodSpec, Paper


class HeapaParams(MethodParams):
    """The released code's defaults, but for the size of the pool."""

    share: float = setting(0.5, "Share of hard prompts φ", "Where the border lies among the pool.", ge=0, le=1)
    most: int = setting(
        30_000,
        "Largest pool",
        "When it is full, the prompt with the lowest reward is thrown out.",
        unit="prompts",
        ge=1,
    )
    augment: bool = setting(
        True, "Variants", "Add variants of trained prompts to the pool (countdown and modular chains know some)."
    )
    variants: int = setting(1, "Variants of a prompt", "Tried each time it is trained.", ge=1, le=16)
    refresh: Literal["none", "child", "path"] = setting(
        "path",
        "Rewards of variants",
        "Carried up to their parents before these come back: by their number of descendants, as a plain mean, or not at all.",
    )
    temperature: float = setting(
        1.0,
        "Temperature of weights",
        "Of the descendants' weights; 1: in proportion to them.",
        gt=0,
        le=100,
        advanced=True,
    )


SPEC = MethodSpec(
    slug="heapa",
    title="HeaPA",
    summary="Draws prompts at the border between hard and easy, and lets the pool grow by variants of what was trained.",
    paper=Paper(
        "HeaPA: Difficulty-Aware Heap Sampling and On-Policy Query Augmentation for LLM Reinforcement Learning",
        "2601.22448",
        "Weiqi Wang, Xin Liu, Binxuan Huang, Hejie Cui, Rongzhi Zhang, Changlong Yu, Shuowei Jin, Jingfeng Yang, Qingyu Yin, "
        "Zhengyang Wang, Zheng Li, Yifan Gao, Priyanka Nigam, Bing Yin, Lihong Li, Yangqiu Song",
    ),
    params=HeapaParams,
    parts={"curriculum": ("trainer.curricula.frontier:Frontier",)},
    problems=("sparse reward", "mixed difficulty", "zero-variance groups", "few problems", "rollout cost"),
    signals=(
        Chart(
            "heapa_pool",
            "Pool",
            ("heapa/pool_size", "heapa/low", "heapa/high", "heapa/cold"),
            "Prompts in the pool, on the hard and on the easy side, and without a reward.",
            "prompts",
            section="method",
        ),
        Chart(
            "heapa_border",
            "Reward at the border",
            ("heapa/boundary_low", "heapa/boundary_high"),
            "Of the easiest hard and the hardest easy prompt. It rises as the policy learns.",
            section="method",
        ),
        Chart(
            "heapa_moves",
            "Prompts that come and go",
            ("heapa/aug_accepted", "heapa/reinserted", "heapa/evicted"),
            "New variants, prompts that came back from the archive, and prompts thrown out, an iteration.",
            "prompts",
            section="method",
        ),
        Chart(
            "heapa_variants",
            "Variants",
            ("heapa/variant_share", "heapa/variant_accuracy", "heapa/aug_valid"),
            "Share of drawn prompts that are variants, how often these are solved, and how many of those tried were accepted.",
            "share",
            True,
            "method",
        ),
        Chart(
            "heapa_refresh",
            "Change by variants",
            ("heapa/refresh_delta",),
            "Mean |change| of rewards when the archive comes back.",
            section="method",
        ),
    ),
)
