"""The trainer's nouns, from the problem to what the optimiser sees.

    Prompt ─▶ Group ─▶ Trajectory ─▶ Node ─▶ Span            what happened
                          └─▶ Sample ─▶ Batch                what is trained

Shape suffixes used everywhere: ``_P`` prompt, ``_G`` rollout in a group, ``_N`` sequence, ``_T`` token.
Two flags of a span are independent: *sampled* (the sampler drew these ids and reported log-probs) and *trained* (the
ids enter the loss). A teacher's span is trained but not sampled; a masked one is sampled but not trained. Ids are never
re-tokenised from text, and masks come from spans, never from ids.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

SpanKind = Literal["prompt", "think", "call", "answer", "observation", "template", "injected", "copy"]
Origin = Literal["policy", "env", "hint", "teacher", "replacement", "history"]
EndReason = Literal["eos", "length", "stop"]


def content_hash(*parts: Any) -> str:
    """First 16 hex digits of the SHA-256 of the parts' canonical JSON: the identity of a problem or a set."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Message:
    """One chat message; a plain task has a single one with role ``user``."""

    role: str
    content: str


@dataclass(frozen=True)
class Prompt:
    """A problem: what the policy is asked and how the answer is judged.

    ``uid`` is a content hash of the problem's identity (see the task), ``answer`` the gold answer or None where only a
    checker exists, ``meta`` JSON values (``chance``: exact success probability of the chance policy, level, domain …).
    """

    uid: str
    messages: tuple[Message, ...]
    answer: str | None
    task: str
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The messages' contents, joined: the raw prompt of a model without a chat template."""
        return "".join(m.content for m in self.messages)


@dataclass(frozen=True)
class Verdict:
    """A checker's finding on one completion.

    ``reward`` None means no verdict. ``answer`` is the key of the final answer's class (None: nothing parseable).
    ``canonical`` is equal for two trajectories iff they are the same solution (None: not admissible as one).
    """

    reward: float | None
    answer: str | None
    canonical: str | None


@dataclass(frozen=True)
class Span:
    """A run of token ids with one meaning. ``logprobs`` exist iff ``sampled``; one per id, sampling distribution."""

    ids: tuple[int, ...]
    kind: SpanKind
    sampled: bool = False
    trained: bool = False
    logprobs: tuple[float, ...] | None = None
    role: str = "policy"
    turn: int = 0
    step: int | None = None
    origin: Origin = "policy"
    policy_version: int = 0

    def __post_init__(self) -> None:
        if self.sampled != (self.logprobs is not None):
            raise ValueError(f"span of kind {self.kind!r}: sampled={self.sampled} needs logprobs iff sampled")
        if self.logprobs is not None and len(self.logprobs) != len(self.ids):
            raise ValueError(f"span of kind {self.kind!r}: {len(self.ids)} ids but {len(self.logprobs)} logprobs")


@dataclass
class Node:
    """The spans of one turn. ``parents`` are node ids: none for a root, several where forked workers join."""

    id: int
    spans: list[Span]
    parents: tuple[int, ...] = ()
    environment: str | None = None
    rewards: dict[str, float | None] = field(default_factory=dict)


@dataclass
class Trajectory:
    """One attempt at a prompt: a DAG of nodes, usually a path. ``rewards`` are named components of the whole attempt;
    ``reward`` is what training uses (None: no verdict, left out of the advantage)."""

    nodes: list[Node]
    uid: str
    index: int
    end: EndReason
    text: str = ""
    rewards: dict[str, float | None] = field(default_factory=dict)
    reward: float | None = None
    answer: str | None = None
    canonical: str | None = None

    def path(self, leaf: int | None = None) -> list[Node]:
        """Root → leaf by first parents (default: the last node)."""
        by_id = {n.id: n for n in self.nodes}
        node = by_id[self.nodes[-1].id if leaf is None else leaf]
        out = [node]
        while node.parents:
            node = by_id[node.parents[0]]
            out.append(node)
        return out[::-1]

    def spans(self) -> Iterator[Span]:
        """The spans along the default path, in the order in which the model saw them."""
        for node in self.path():
            yield from node.spans

    @property
    def truncated(self) -> bool:
        """Whether the token limit ended the attempt."""
        return self.end == "length"

    @property
    def correct(self) -> bool:
        """Whether the attempt earned the full reward of 1."""
        return self.reward is not None and self.reward >= 1.0

    @property
    def sampled_tokens(self) -> int:
        """Tokens drawn from a policy over the whole DAG, end-of-sequence included."""
        return sum(len(s.ids) for n in self.nodes for s in n.spans if s.sampled)


@dataclass
class Group:
    """A prompt with its trajectories; ``id`` is any hashable and the key of group statistics."""

    prompt: Prompt
    trajectories: list[Trajectory]
    id: str
    draw: int = 0
    probability: float = 1.0

    @property
    def solved(self) -> int:
        """How many trajectories are correct."""
        return sum(t.correct for t in self.trajectories)

    @property
    def zero_variance(self) -> bool:
        """All verdicts equal (range test below 1e-6): no learning signal. True where there is no verdict at all."""
        rewards = [t.reward for t in self.trajectories if t.reward is not None]
        return not rewards or max(rewards) - min(rewards) < 1e-6


@dataclass
class Sample:
    """A linear sequence for the optimiser. ``prefix_ids`` is context; ``ids`` holds everything after it, with one entry
    per id in ``trained`` (enters the loss), ``sampled`` and ``sampler_logprobs`` (NaN where not sampled)."""

    prefix_ids: tuple[int, ...]
    ids: tuple[int, ...]
    trained: tuple[bool, ...]
    sampled: tuple[bool, ...]
    sampler_logprobs: tuple[float, ...]
    group_id: str
    trajectory: Trajectory
    columns: dict[str, float | tuple[float, ...]] = field(default_factory=dict)


@dataclass
class Batch:
    """Tensors of N samples; grouping is by ``group_ids``, never by position.

    ``prefix_ids_NP`` right-aligned in meaning but right-padded in memory with ``prefix_len_N``; ``ids_NT`` right-padded
    with ``mask_NT`` (1 = enters the loss) and ``length_N`` (tokens present). ``columns`` are named per-sample ``(N,)`` or
    per-token ``(N, T)`` tensors that parts declare and fill.
    """

    samples: Sequence[Sample]
    prefix_ids_NP: torch.Tensor
    prefix_len_N: torch.Tensor
    ids_NT: torch.Tensor
    length_N: torch.Tensor
    mask_NT: torch.Tensor
    group_ids: list[str]
    reward_N: torch.Tensor
    columns: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of samples N."""
        return len(self.group_ids)
