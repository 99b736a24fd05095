"""Whether what was mastered before an update is mastered after it. Source: MCPO, arXiv 2604.16972."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainer.contract.config import RlConfig
from trainer.core.context import Context
from trainer.core.types import Prompt
from trainer.loop.evaluate import judge
from trainer.rollout.sampler import Request, SamplingParams, StreamKey

if TYPE_CHECKING:
    from trainer.contract.events import Evaluation
    from trainer.methods.mcpo import McpoParams


class Retention:
    """At a validation: draws new groups for prompts that were mastered before the last update."""

    def __init__(self, params: McpoParams, config: RlConfig) -> None:
        self.p, self.config = params, config

    def measure(self, ctx: Context, event: Evaluation, prompts: tuple[Prompt, ...]) -> None:
        """``mcpo/one_step_retention``: the share whose G new rollouts are all right again; undefined without any."""
        names = ctx.state.memory_of("mcpo").get("mastered", [])[: self.p.retention_prompts]
        by_uid = {p.uid: p for p in ctx.pool}
        chosen = [by_uid[uid] for uid in names if uid in by_uid]
        if not chosen:
            ctx.metrics["mcpo/one_step_retention"] = math.nan
            return
        policy, size = ctx.policy, self.config.algorithm.num_generations
        requests = [Request(uid=p.uid, prompt_ids=policy.encode_prompt(p.messages), n=size) for p in chosen]
        stream = StreamKey(
            seed=self.config.seed, scope=ctx.scope, purpose="retention", iteration=ctx.state.counters.iteration
        )
        params = SamplingParams.of(self.config.sampling, policy.eos_ids)
        found = ctx.sampler.generate(requests, params, stream, should_stop=ctx.should_stop)
        kept = [judge(p, samples, ctx).c == size for p, samples in zip(chosen, found, strict=True)]
        ctx.state.counters.evaluation_tokens += sum(len(c.ids) for samples in found for c in samples)
        ctx.metrics["mcpo/one_step_retention"] = sum(kept) / len(kept)
