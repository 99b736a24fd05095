"""Batches and contexts for tests of single steps, from the real nouns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from trainer.core.state import PolicyState, TrainState
from trainer.core.types import Batch, Group, Message, Node, Prompt, Span, Trajectory
from trainer.core.world import World
from trainer.loop.batching import WholePath, build_batch
from trainer.policy.load import Policy

PROMPT = Prompt("p", (Message("user", "1+1="),), "2", "test")


def trajectory(
    ids: Sequence[int], *, reward: float | None = None, end: Any = "eos", prompt: Sequence[int] = (4, 5)
) -> Trajectory:
    """One sampled answer after a prompt."""
    answer = Span(tuple(ids), "answer", sampled=True, trained=True, logprobs=(-1.0,) * len(ids))
    node = Node(0, [Span(tuple(prompt), "prompt", origin="env"), answer])
    return Trajectory([node], "p", 0, end, reward=reward, outcome=reward)


def group(rewards: Sequence[float | None], name: str = "g") -> Group:
    return Group(PROMPT, [trajectory([4, 5], reward=r) for r in rewards], name)


def batch_of(trajectories: Sequence[Trajectory], *, pad_id: int = 0, ids: Sequence[str] | None = None) -> Batch:
    """The trajectories as the loop makes a batch of them, each in a group of its own unless ``ids`` names them."""
    samples = []
    for i, one in enumerate(trajectories):
        home = Group(PROMPT, [one], ids[i] if ids else str(i))
        samples += WholePath().samples(one, home, SimpleNamespace())  # type: ignore[arg-type]
    return build_batch(samples, pad_id)


def context(policy: Policy | None = None) -> Any:
    """What a step asks a context for."""
    tallies: dict[str, list[float]] = {}

    def tally(key: str, numerator: float, denominator: float) -> None:
        sums = tallies.setdefault(key, [0.0, 0.0])
        sums[0] += numerator
        sums[1] += denominator

    policies = {} if policy is None else {"policy": PolicyState(policy)}
    return SimpleNamespace(
        policy=policy, state=TrainState(policies), metrics={}, tally=tally, tallies=tallies, iteration=1,
        sampler=SimpleNamespace(refresh=lambda: None), world=World(), shared=lambda work, lockstep: [work()],
    )  # fmt: skip


def advantages(batch: Batch, values: Sequence[float]) -> None:
    """Sets the column, constant along each row."""
    batch.columns["advantage"] = torch.tensor(values)[:, None].expand(batch.ids_NT.shape).contiguous()


NAN = math.nan
