"""LongAct: sparse updates of the query and key projections (arXiv 2604.14922), over any base algorithm.

The rule: on long inputs a few channels of queries and keys carry very large activations. Only the rows of W_Q and W_K that
make the most salient channels of the current batch are trained; all other parameters are trained as usual, and inference
is unchanged.

Deviations and what is derived: only the abstract and a page on method and results were available (mask on the gradients of
W_Q and W_K, top k, 30 %). Rows rather than single weights, the aggregator over tokens, the scope, the smoothing and what
becomes of a masked row's moments are ours and switchable. Saliency is read before the rotary embedding and before any norm
of queries and keys. It takes a forward pass of its own, without gradient and head, each time it is refreshed. A 99 %
quantile as aggregator is left out, because it would keep all activations. Fused query-key-value matrices are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trainer.contract.charts import Chart
from trainer.contract.config import setting
from trainer.core.registry import MethodParams, MethodSpec, Paper

if TYPE_CHECKING:
    from trainer.contract.config import RlConfig
    from trainer.contract.events import Evaluation
    from trainer.core.context import Context
    from trainer.core.types import Prompt

KINDS = ("q", "k")


class LongActParams(MethodParams):
    """The share is the paper's; the other defaults are ours."""

    share: float = setting(
        0.3, "Share of channels ρ", "Query and key channels whose rows are trained; 1 trains all.", ge=0.01, le=1
    )
    mode: Literal["top", "bottom", "random", "all"] = setting(
        "top", "Which channels", "The most salient ones (the method), or for comparison the least, any, or all."
    )
    others: bool = setting(
        True, "Train other parameters", "Off: only the chosen rows are trained, the other reading of the paper."
    )
    scope: Literal["per_layer", "per_head", "global"] = setting(
        "per_layer", "Chosen within", "Each projection, each of its heads, or all layers together.", advanced=True
    )
    aggregator: Literal["mean", "max", "rms"] = setting(
        "mean", "Saliency", "Of a channel's absolute activations over tokens.", advanced=True
    )
    tokens: Literal["all", "prompt", "response"] = setting(
        "all", "Tokens read", "Of prompts, of answers, or both.", advanced=True
    )
    refresh_every: int = setting(
        1, "Refresh every", "Chooses anew from the current batch.", unit="iterations", ge=1, le=10_000, advanced=True
    )
    smoothing: float = setting(
        0.0, "Smoothing", "Decay of a moving average of the saliency; 0: the batch alone.", ge=0, lt=1, advanced=True
    )
    moments: Literal["freeze", "keep", "reset"] = setting(
        "freeze",
        "Moments of masked rows",
        "Kept as they are, moved on as with a gradient of zero, or set to zero.",
        advanced=True,
    )


def refused(params: LongActParams, config: RlConfig) -> dict[str, str]:
    """What it cannot run with."""
    if config.hardware.processes > 1:
        found = (
            f"found {config.hardware.processes}, expected 1: LongAct masks rows of whole matrices, and shares have none"
        )
        return {"hardware.processes": found}
    return {}


class LongActFigures:
    """At a validation: accuracy by length of the context, and maps over the layers."""

    def __init__(self, params: LongActParams, config: RlConfig) -> None:
        pass

    def measure(self, ctx: Context, event: Evaluation, prompts: tuple[Prompt, ...]) -> None:
        """Accuracy by length goes into the metrics, the maps into events; none before the first mask."""
        from trainer.contract.drawn import heatmap
        from trainer.diagnostics.lengths import accuracy_by_length
        from trainer.updates.saliency import standing_out

        lengths = {p.uid: len(ctx.policy.encode_prompt(p.messages)) for p in prompts}
        ctx.metrics.update(accuracy_by_length([(lengths[p.uid], p.n, p.c) for p in event.problems]))
        memory = ctx.state.memory.get("longact", {})
        maps = {
            "saliency": {n: standing_out(s) for n, s in memory.get("saliency", {}).items()},
            "overlap": memory.get("overlap", {}),
        }
        for key, values in maps.items():
            by_kind = [[v for n, v in values.items() if n.endswith(f"{kind}_proj")] for kind in KINDS]
            if by_kind[0]:
                z = [list(layer) for layer in zip(*by_kind, strict=True)]
                y = [f"layer {i + 1}" for i in range(len(z))]
                ctx.emit(heatmap(ctx.state.axes(), f"longact/{key}", x=["queries", "keys"], y=y, z=z))


SPEC = MethodSpec(
    slug="longact",
    title="LongAct",
    summary="Trains only those rows of the query and key projections that make the channels with the largest activations, "
    "for reasoning over long contexts.",
    paper=Paper(
        "LongAct: Harnessing Intrinsic Activation Patterns for Long-Context Reinforcement Learning",
        "2604.14922",
        "B. Ping, Z. Chen, T. Hui, Q. Yu, C. Li, J. Yan, B. Chang",
    ),
    params=LongActParams,
    parts={
        "update": ("trainer.updates.salient_rows:SalientRows",),
        "diagnostic": ("trainer.methods.longact:LongActFigures",),
    },
    needs=frozenset({"activations"}),
    refused=refused,
    problems=("long context", "forgets", "sparse update", "length generalisation"),
    signals=(
        Chart(
            "longact_saliency",
            "Salient channels",
            ("longact/saliency_max_over_median_q", "longact/saliency_max_over_median_k"),
            "Largest channel over the median one. Near 1 no channel stands out, and the method has nothing to choose.",
            section="method",
        ),
        Chart(
            "longact_masks",
            "Chosen rows",
            ("longact/selected_energy", "longact/mask_jaccard"),
            "Share of Σs² that is chosen, and overlap with the choice before: a low overlap means restless masks.",
            "share",
            True,
            "method",
        ),
        Chart(
            "longact_gradients",
            "Gradient kept",
            ("longact/grad_kept_frac_q", "longact/grad_kept_frac_k"),
            "Norm of a projection's gradient after the mask over that before.",
            "share",
            True,
            "method",
        ),
        Chart(
            "longact_rows",
            "Rows trained",
            ("longact/rows_updated", "longact/masked_row_drift"),
            "The drift of masked rows must be exactly 0.",
            section="method",
        ),
        Chart(
            "longact_lengths",
            "Accuracy by context length",
            tuple(
                f"eval/accuracy@{bucket}" for bucket in ("64", "128", "256", "512", "1k", "2k", "4k", "8k", "longer")
            ),
            "Validation accuracy of prompts of up to so many tokens.",
            "share",
            True,
            "method",
        ),
    ),
    derived=True,
)
