"""Training only the rows behind the most salient channels of queries and keys; see `trainer.methods.longact`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trainer.core.slots import Steps
from trainer.policy.hooks import channel_statistics, projections
from trainer.updates.row_mask import MaskedUpdate, Rows, parameters_of
from trainer.updates.saliency import energy, jaccard, masks, saliency, standing_out

if TYPE_CHECKING:
    from trainer.contract.config import RlConfig
    from trainer.core.context import Context
    from trainer.core.types import Batch
    from trainer.methods.longact import LongActParams


class SalientRows(MaskedUpdate):
    """Chooses the rows before the first step of an iteration."""

    slug = "longact"

    def __init__(self, params: LongActParams, config: RlConfig) -> None:
        """``config`` says nothing about it."""
        self.p, self.moments, self.others = params, params.moments, params.others

    def before(self, batch: Batch, steps: Steps, ctx: Context) -> None:
        """Where it is due, reads the batch and moves the masks on; without a token they stay, and are all ones at first."""
        p, memory = self.p, ctx.state.memory_of("longact", lambda: {"saliency": {}, "mask": {}, "overlap": {}})
        if memory["mask"] and (ctx.iteration - 1) % p.refresh_every:
            return
        config = ctx.policy.model.config
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        smooth, old = memory["saliency"], dict(memory["mask"])
        of_kind = {kind: projections(ctx.policy.model, f"{kind}_proj") for kind in ("q", "k")}
        found = channel_statistics(ctx.policy, batch, [n for names in of_kind.values() for n in names], p.tokens)
        for kind, names in of_kind.items():
            if not all(found[n].count for n in names):
                memory["mask"] |= {n: old.get(n, torch.ones_like(found[n].absolute, dtype=torch.bool)) for n in names}
                continue
            for n in names:
                now = saliency(found[n], p.aggregator)
                smooth[n] = p.smoothing * smooth[n] + (1 - p.smoothing) * now if n in smooth else now
            rng = ctx.rng("longact", kind)
            memory["mask"] |= masks({n: smooth[n] for n in names}, p.share, p.mode, p.scope, head_dim, rng)
            for n in names:
                ctx.tally(f"longact/saliency_max_over_median_{kind}", standing_out(smooth[n]), 1.0)
                ctx.tally("longact/selected_energy", energy(smooth[n], memory["mask"][n]), 1.0)
                if n in old:
                    memory["overlap"][n] = jaccard(old[n], memory["mask"][n])
                    ctx.tally("longact/mask_jaccard", memory["overlap"][n], 1.0)

    def rows(self, ctx: Context) -> Rows:
        """Those of the chosen channels, in every trained parameter that makes them."""
        chosen = ctx.state.memory_of("longact")["mask"]
        return {name: mask for module, mask in chosen.items() for name in parameters_of(ctx.policy.model, module)}

    def note_kept(self, name: str, share: float, ctx: Context) -> None:
        """By query and key."""
        ctx.tally(f"longact/grad_kept_frac_{'q' if '.q_proj.' in name else 'k'}", share, 1.0)
