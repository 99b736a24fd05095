"""A case through verl's registered policy losses."""

from __future__ import annotations

import torch
from verl.trainer.ppo import core_algos
from verl.workers.config.actor import ActorConfig

from tests.anchor.cases import LONGEST, Case, tensors
from tests.anchor.ours import graded
from trainer.objectives.mismatch import correction


def config(kind: str) -> ActorConfig:
    """An actor's configuration with our clip bounds; verl's CISPO has offsets from 1."""
    own = ActorConfig(strategy="fsdp", rollout_n=2, ppo_micro_batch_size_per_gpu=1)
    low, high = 0.2, 0.28
    object.__setattr__(own, "clip_ratio_low", low)
    object.__setattr__(own, "clip_ratio_high", high)
    object.__setattr__(own, "global_batch_info", {"loss_scale_factor": LONGEST})
    return own


def by_verl(case: Case, dtype: torch.dtype) -> tuple[float, torch.Tensor]:
    """(loss, gradient)."""
    t, o = tensors(case, dtype), case.theirs
    advantage = t.advantage if t.advantage.ndim == 2 else t.advantage[:, None].expand_as(t.mask)
    weight = None
    if o["weighted"]:
        weight = correction(t.old, t.sampler, t.mask, mode="token_truncate", low=None, high=1.5).weight
    loss, _ = core_algos.get_policy_loss_fn(o["kind"])(
        old_log_prob=t.old, log_prob=t.now, advantages=advantage, response_mask=t.mask, loss_agg_mode=o["mode"],
        config=config(o["kind"]), rollout_is_weights=weight,
    )  # fmt: skip
    return graded(loss, t)
