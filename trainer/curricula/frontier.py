"""The curriculum over `trainer.curricula.heap`: draws at the border, keeps an archive, lets the pool grow by variants."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from trainer.contract.drawn import histogram
from trainer.core.context import Context
from trainer.core.slots import Draw
from trainer.core.types import Group, Message, Prompt
from trainer.curricula.heap import Pool, adjusted, refreshed
from trainer.data.task import split_of

if TYPE_CHECKING:
    from trainer.contract.config import RlConfig
    from trainer.methods.heapa import HeapaParams

SLUG = "heapa"
UNKNOWN = 0.5
"""Reward of a variant whose parent has none."""


class Frontier:
    """What leaves the pool when it is drawn comes back, with its new reward, when the pool runs short."""

    def __init__(self, params: HeapaParams, config: RlConfig) -> None:
        self.p, self.batch = params, config.algorithm.prompts_per_iteration

    def select(self, count: int, ctx: Context) -> list[Draw]:
        """``count`` draws, fewer where the pool has no more. Nothing changes before the rollouts are in."""
        memory, taken = self._memory(ctx), [d.prompt.uid for d in ctx.drawn]
        pool = self._pool(memory)
        pool.remove(taken)
        chosen = pool.chosen(count, ctx.rng("curriculum", len(taken)))
        known = {p.uid: p for p in ctx.pool}
        return [Draw(known[uid] if uid in known else _prompt(uid, memory["variants"][uid])) for uid in chosen]

    def observe(self, groups: Sequence[Group], dropped: Sequence[Group], ctx: Context) -> None:
        """Moves what was drawn to the archive, adds variants of it, and puts the archive back when the pool runs short."""
        memory = self._memory(ctx)
        ctx.state.memory[SLUG] = memory
        pool, every = self._pool(memory), [*groups, *dropped]
        self._tell_draws(every, memory, ctx)
        pool.remove([g.prompt.uid for g in every])
        for group in every:
            judged = [t.outcome for t in group.trajectories if t.outcome is not None]
            memory["rewards"][group.prompt.uid] = fmean(judged) if judged else None
            memory["archive"].append(group.prompt.uid)
        made = [child for group in every if self.p.augment for child in self._variants(group, memory, ctx)]
        gone = [pool.insert(uid, memory["rewards"][uid]) for uid in made]
        back = 0
        if len(pool) < self.batch:
            back = self._come_back(pool, memory, ctx)
        memory["low"], memory["high"] = [list(e) for e in pool.low], [list(e) for e in pool.high]
        memory["cold"] = pool.cold
        m = ctx.metrics
        m["heapa/pool_size"], m["heapa/low"] = float(len(pool)), float(len(pool.low))
        m["heapa/high"], m["heapa/cold"] = float(len(pool.high)), float(len(pool.cold))
        if pool.low:
            m["heapa/boundary_low"] = pool.low[-1][0]
        if pool.high:
            m["heapa/boundary_high"] = pool.high[0][0]
        m["heapa/aug_accepted"], m["heapa/reinserted"] = float(len(made)), float(back)
        m["heapa/evicted"] = float(sum(uid is not None for uid in gone))

    def _variants(self, group: Group, memory: dict[str, Any], ctx: Context) -> list[str]:
        """Uids of accepted variants of one prompt: of the training split, and new."""
        parent, out = group.prompt, []
        for number in range(self.p.variants):
            ctx.tally("heapa/aug_valid", 0.0, 1.0)
            child = ctx.task.variant(parent, ctx.rng("heapa variant", group.id, number))
            if child is None or child.uid in memory["rewards"] or split_of(child.uid) != "train":
                continue
            ctx.tally("heapa/aug_valid", 1.0, 0.0)
            reward = memory["rewards"].get(parent.uid)
            # One number was changed: as many operations, so a difficulty of 1.
            memory["difficulty"][child.uid] = 1.0
            memory["rewards"][child.uid] = UNKNOWN if reward is None else max(-1.0, min(1.0, adjusted(reward, 1.0)))
            memory["children"].setdefault(parent.uid, []).append(child.uid)
            memory["variants"][child.uid] = _packed(child)
            out.append(child.uid)
        return out

    def _come_back(self, pool: Pool, memory: dict[str, Any], ctx: Context) -> int:
        """The archive into the pool, rewards refreshed; how many."""
        archive = list(dict.fromkeys(memory["archive"]))
        inside = [uid for uid in memory["rewards"] if uid not in set(archive)]
        new = refreshed(
            memory["rewards"], memory["children"], memory["difficulty"], mode=self.p.refresh,
            temperature=self.p.temperature, fixed=set(inside),
        )  # fmt: skip
        moved = [
            abs(b - a) for uid in archive if (a := memory["rewards"][uid]) is not None and (b := new[uid]) is not None
        ]
        if moved:
            ctx.metrics["heapa/refresh_delta"] = fmean(moved)
        memory["rewards"] = new
        ctx.rng("heapa archive").shuffle(archive)
        for uid in archive:
            pool.insert(uid, new[uid])
        memory["archive"] = []
        return len(archive)

    def _memory(self, ctx: Context) -> dict[str, Any]:
        found = ctx.state.memory.get(SLUG)
        if found:
            return found
        uids = [p.uid for p in ctx.pool]
        return {
            "low": [], "high": [], "cold": uids, "archive": [], "rewards": dict.fromkeys(uids), "children": {},
            "difficulty": {}, "variants": {},
        }  # fmt: skip

    def _pool(self, memory: dict[str, Any]) -> Pool:
        low, high = ([(reward, uid) for reward, uid in memory[side]] for side in ("low", "high"))
        return Pool(low, high, list(memory["cold"]), self.p.share, self.p.most)

    def _tell_draws(self, groups: Sequence[Group], memory: dict[str, Any], ctx: Context) -> None:
        rewards = [r for g in groups if (r := memory["rewards"].get(g.prompt.uid)) is not None]
        axes = ctx.state.axes(iteration=ctx.iteration)
        ctx.emit(histogram(axes, "heapa/sampled_reward_hist", rewards, bins=10, span=(-1, 1)))
        for group in groups:
            new = group.prompt.uid in memory["variants"]
            ctx.tally("heapa/variant_share", float(new), 1.0)
            if new:
                ctx.tally("heapa/variant_accuracy", float(group.solved), float(len(group.trajectories)))


def _packed(prompt: Prompt) -> dict[str, Any]:
    messages = [[m.role, m.content] for m in prompt.messages]
    return {"messages": messages, "answer": prompt.answer, "task": prompt.task, "meta": dict(prompt.meta)}


def _prompt(uid: str, values: dict[str, Any]) -> Prompt:
    messages = tuple(Message(role, content) for role, content in values["messages"])
    return Prompt(uid, messages, values["answer"], values["task"], values["meta"])
