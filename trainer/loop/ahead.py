"""Off-policy by a set number of iterations (``algorithm.staleness``): batches are drawn before the updates that precede theirs.

With staleness s, iteration t trains on rollouts of the weights before update t − s, as if a generator worked through the s
updates in between; the first s + 1 batches come from the first weights. The order of things is that of such a generator: a
batch is chosen, drawn and judged knowing only what was known when it was drawn. But here one thing follows the other: this
mode makes the numbers of an asynchronous trainer, not its speed.

What waits is part of the state, in JSON form from the moment when it is drawn, so that a stopped run finds the very batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainer.contract.config import RlConfig
from trainer.core.context import Context
from trainer.core.errors import MethodError
from trainer.core.types import Group
from trainer.rollout.packed import packed, unpacked

MEMORY, BATCHES = "ahead", "batches"


def next_batch(config: RlConfig, ctx: Context, collect: Callable[[], list[Group]]) -> list[Group]:
    """The groups that this iteration trains on, after those of the next iterations were drawn with the weights of this
    moment. ``collect`` draws the batch of ``ctx.iteration``. Raises SamplingStopped with the state untouched."""
    waiting = list(ctx.state.memory.get(MEMORY, {}).get(BATCHES, []))
    while len(waiting) <= config.algorithm.staleness and ctx.iteration + len(waiting) <= config.budget.iterations:
        with ctx.ahead(len(waiting)):
            waiting.append({"groups": packed(collect()), "metrics": ctx.collect()})
    first, *rest = waiting
    ctx.state.memory_of(MEMORY)[BATCHES] = rest
    ctx.metrics.update(first["metrics"])
    return unpacked(first["groups"])


def staleness(config: RlConfig, groups: Sequence[Group], ctx: Context) -> dict[str, float]:
    """How many updates behind the weights were that drew each token of the groups. Raises MethodError where that is more
    than the configuration allows."""
    now = ctx.state.counters.policy_version
    spans = [s for g in groups for t in g.trajectories for n in t.nodes for s in n.spans if s.sampled and s.ids]
    if not spans:
        return {}
    lags = [now - s.policy_version for s in spans]
    if wrong := [lag for lag in lags if not 0 <= lag <= config.algorithm.staleness]:
        raise MethodError(
            f"iteration {ctx.iteration}: found tokens that were drawn {wrong[0]} updates ago, expected 0 to "
            f"{config.algorithm.staleness} (algorithm.staleness)"
        )
    tokens = [len(s.ids) for s in spans]
    mean = sum(lag * count for lag, count in zip(lags, tokens, strict=True)) / sum(tokens)
    return {"staleness/mean": mean, "staleness/max": float(max(lags))}
