"""Two heaps of prompts, hard and easy, drawn from at the border between them. Source: HeaPA, arXiv 2601.22448, and its
code. Heaps are kept as sorted lists: pools are small, and ties have an order."""

from __future__ import annotations

import math
import random
from bisect import insort
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Refresh = Literal["none", "child", "path"]
Entry = tuple[float, str]
"""(reward, uid)."""
TOLERANCE, MOST_MOVES = 1, 4


@dataclass
class Pool:
    """``low`` is the hard side, ``high`` the easy one, both in rising order of reward; ``cold`` are prompts without a reward,
    first in, first out. ``share`` of the two sides should be hard."""

    low: list[Entry] = field(default_factory=list)
    high: list[Entry] = field(default_factory=list)
    cold: list[str] = field(default_factory=list)
    share: float = 0.5
    most: int = 30_000

    def __len__(self) -> int:
        return len(self.low) + len(self.high) + len(self.cold)

    def insert(self, uid: str, reward: float | None) -> str | None:
        """Puts a prompt where its reward belongs. When the pool is full the hardest is thrown out, whose uid is returned."""
        if reward is None:
            self.cold.append(uid)
            return None
        full, entry = len(self) >= self.most, (reward, uid)
        border = self.high[0][0] if self.high else None
        if full:
            insort(self.low if border is not None and reward <= border else self.high, entry)
        else:
            insort(self.high if border is None or reward > border else self.low, entry)
        gone = (self.low or self.high).pop(0)[1] if full else None
        self.rebalance()
        return gone

    def rebalance(self) -> None:
        """At most four moves over the border, until the hard side has its share, give or take one."""
        wanted = round(self.share * (len(self.low) + len(self.high)))
        for _ in range(MOST_MOVES):
            if len(self.low) > wanted + TOLERANCE:
                insort(self.high, self.low.pop())
            elif len(self.low) < wanted - TOLERANCE:
                insort(self.low, self.high.pop(0))
            else:
                return

    def candidates(self, count: int) -> list[Entry]:
        """The prompts nearest to the border, easiest-side top first, alternately; from one side when the other is used up."""
        low, high, out = list(reversed(self.low)), list(self.high), list[Entry]()
        while len(out) < count and (low or high):
            side = high if (len(out) % 2 == 0 and high) or not low else low
            out.append(side.pop(0))
        return out

    def chosen(self, count: int, rng: random.Random) -> list[str]:
        """``count`` uids, fewer where there are no more: all cold ones first, then of twice as many candidates at the border as
        are needed. The pool stays as it is."""
        first = self.cold[:count]
        needed = count - len(first)
        near = self.candidates(2 * needed)
        return first + [uid for _, uid in rng.sample(near, min(needed, len(near)))]

    def remove(self, uids: Collection[str]) -> None:
        """Takes prompts out."""
        gone = set(uids)
        self.low, self.high = ([e for e in side if e[1] not in gone] for side in (self.low, self.high))
        self.cold = [uid for uid in self.cold if uid not in gone]
        self.rebalance()


def adjusted(value: float, difficulty: float) -> float:
    """adj(v, d): a harder variant's reward is lower, v/d for v ≥ 0 and v·d below; ``difficulty`` not above 0 counts as 1."""
    d = difficulty if difficulty > 0 else 1.0
    return value / d if value >= 0 else value * d


def path_weights(leaves: Sequence[int], temperature: float = 1.0) -> list[float]:
    """softmax(ln n/T) of the children's leaf counts; with T = 1 in proportion to them."""
    logs = [math.log(n) / temperature for n in leaves]
    top = max(logs)
    raw = [math.exp(x - top) for x in logs]
    return [x / sum(raw) for x in raw]


def refreshed(
    rewards: Mapping[str, float | None],
    children: Mapping[str, Sequence[str]],
    difficulty: Mapping[str, float],
    *,
    mode: Refresh,
    temperature: float = 1.0,
    fixed: Collection[str] = (),
) -> dict[str, float | None]:
    """Rewards after those of variants have been carried up, bottom-up: half a prompt's own, half the mean of its children's,
    adjusted for their difficulty, held to [−1, 1]. ``rewards`` names parents before their children; those in ``fixed`` stay
    as they are. ``mode`` "child": a plain mean; "path": weighted by the leaves below each child. Children without a
    reward are skipped."""
    out, leaves = dict(rewards), dict[str, int]()
    for uid in reversed(list(rewards)):
        below = [c for c in children.get(uid, ()) if c in out]
        leaves[uid] = sum(leaves[c] for c in below) or 1
        known = [(adjusted(value, difficulty.get(c, 1.0)), leaves[c]) for c in below if (value := out[c]) is not None]
        if mode == "none" or not known or uid in fixed:
            continue
        values, counts = zip(*known, strict=True)
        weights = path_weights(counts, temperature) if mode == "path" else [1 / len(values)] * len(values)
        mean = math.fsum(w * v for w, v in zip(weights, values, strict=True))
        own = out[uid]
        new = mean if own is None else 0.5 * own + 0.5 * mean
        out[uid] = max(-1.0, min(1.0, new))
    return out
