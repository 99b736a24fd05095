"""A bonus for right answers whose critical path is short (ThreadWeaver), and what a run shows about forking."""

from __future__ import annotations

from trainer.core.context import Context
from trainer.core.types import Group, Trajectory
from trainer.rollout.fork_join import Tags, acceleration, answer_ids, critical_path, is_thread


def bonus(correct: bool, eta: float, cap: float) -> float:
    """c · min(η, η_max)."""
    return min(eta, cap) if correct else 0.0


def well_formed(trajectory: Trajectory, ids: list[int], tags: dict[str, int]) -> bool:
    """Whether blocks are closed and all threads are the orchestrator's: a policy that writes thread tags itself would be
    paid for a parallelism that was never there."""
    for node in trajectory.nodes:
        for span in node.spans:
            if span.sampled and (tags["thread"] in span.ids or tags["end_thread"] in span.ids[:-1]):
                return False
    return ids.count(tags["parallel"]) == ids.count(tags["end_parallel"])


class Acceleration:
    """Component ``acceleration``, with weight ρ; it shapes the reward and is no part of the outcome. Reads ``accuracy``."""

    shaping = True

    def __init__(self, style: str, rho: float, cap: float) -> None:
        self.style, self.cap = style, cap
        self.weights = {"acceleration": rho}

    def score(self, group: Group, ctx: Context) -> list[dict[str, float | None]]:
        """One dict a trajectory; η counts for nothing where the format is broken."""
        tags = Tags.of(self.style, ctx.policy).ids
        out: list[dict[str, float | None]] = []
        sequential: list[int] = []
        forked: list[int] = []
        for t in group.trajectories:
            seen = answer_ids(t)
            total, path = critical_path(seen, tags)
            ok = well_formed(t, seen, tags)
            eta = acceleration(total, path) if ok else 0.0
            accuracy = t.rewards.get("accuracy")
            correct = accuracy is not None and accuracy >= 1.0
            out.append({"acceleration": bonus(correct, eta, self.cap)})
            threads = sum(is_thread(n) for n in t.nodes)
            blocks = len({n.parents for n in t.nodes if is_thread(n)})
            (forked if threads else sequential).append(path if threads else total)
            ctx.tally("tw/eta", eta, 1)
            ctx.tally("tw/critical_path", path, 1)
            ctx.tally("tw/total_tokens", total, 1)
            ctx.tally("tw/with_parallel_frac", bool(threads), 1)
            ctx.tally("tw/blocks", blocks, 1)
            ctx.tally("tw/threads_per_block", threads, blocks)
            ctx.tally("tw/accel_reward", self.weights["acceleration"] * bonus(correct, eta, self.cap), 1)
            ctx.tally("tw/format_ok", ok, 1)
            ctx.tally("tw/units_per_traj", sum(any(s.trained for s in n.spans) for n in t.nodes), 1)
            if "independent" in group.prompt.meta:
                kind = "independent" if group.prompt.meta["independent"] else "dependent"
                ctx.tally(f"tw/fork_rate/{kind}", bool(threads), 1)
        if sequential and forked:
            ctx.tally("tw/speedup", sum(sequential) / len(sequential), sum(forked) / len(forked))
        return out
