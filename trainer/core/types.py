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
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

    from trainer.policy.truncation import Kept

SpanKind = Literal["prompt", "think", "call", "answer", "observation", "template", "injected", "copy"]
Origin = Literal["policy", "env", "hint", "teacher", "replacement", "history"]
EndReason = Literal["eos", "length", "stop"]

AUTHOR = "author_logprobs"
"""A batch's column (N, T): a teacher's log-probs of tokens that nobody sampled, NaN where unknown or sampled."""


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
    ``by`` names the comparer that decided, where a task has several.
    """

    reward: float | None
    answer: str | None
    canonical: str | None
    by: str = ""


@dataclass(frozen=True)
class Span:
    """A run of token ids with one meaning. ``logprobs``, one per id, are those of whoever wrote them: of the sampling
    distribution where ``sampled``, otherwise of a teacher, where known. A span of kind ``copy`` repeats the tokens of the node
    ``source`` where forked pieces join; it is never trained."""

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
    source: int | None = None

    def __post_init__(self) -> None:
        if (self.kind == "copy") != (self.source is not None) or (self.source is not None and self.trained):
            raise ValueError(
                f"span of kind {self.kind!r}: a copy names its source, nothing else does, and it is not trained"
            )
        if self.sampled and self.logprobs is None:
            raise ValueError(f"span of kind {self.kind!r}: sampled, but without the sampler's logprobs")
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
    ``reward`` is what training uses (None: no verdict, left out of the advantage); ``outcome`` is the same without
    rewards that only shape it (a punishment of length)."""

    nodes: list[Node]
    uid: str
    index: int
    end: EndReason
    text: str = ""
    rewards: dict[str, float | None] = field(default_factory=dict)
    reward: float | None = None
    outcome: float | None = None
    answer: str | None = None
    canonical: str | None = None
    judged_by: str = ""

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
        return self.outcome is not None and self.outcome >= 1.0

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
        return _all_equal(t.reward for t in self.trajectories)

    @property
    def same_outcome(self) -> bool:
        """The same of outcomes: all right, all wrong, or nothing judged."""
        return _all_equal(t.outcome for t in self.trajectories)


def _all_equal(values: Iterable[float | None]) -> bool:
    known = [v for v in values if v is not None]
    return not known or max(known) - min(known) < 1e-6


@dataclass
class Sample:
    """What the optimiser sees of a trajectory. ``prefix_ids`` is context; ``ids`` holds everything after it, with one entry
    per id in ``trained`` (enters the loss), ``sampled`` and ``sampler_logprobs`` (NaN where not sampled). ``columns`` become
    the batch's: a number of the sample, or one per id; NaN in samples that lack one.

    ``parents`` makes it a tree: the place in ``ids`` of the token before each token, −1 for the prefix's last, always
    earlier. A token then sees its ancestors only, and its position is its depth. Without, it is a line."""

    prefix_ids: tuple[int, ...]
    ids: tuple[int, ...]
    trained: tuple[bool, ...]
    sampled: tuple[bool, ...]
    sampler_logprobs: tuple[float, ...]
    group_id: str
    trajectory: Trajectory
    columns: dict[str, float | tuple[float, ...]] = field(default_factory=dict)
    parents: tuple[int, ...] | None = None


@dataclass
class Batch:
    """Tensors of N samples; grouping is by ``group_ids``, never by position.

    ``prefix_ids_NP`` right-aligned in meaning but right-padded in memory with ``prefix_len_N``; ``ids_NT`` right-padded
    with ``mask_NT`` (1 = enters the loss) and ``length_N`` (tokens present). ``columns`` are named per-sample ``(N,)`` or
    per-token ``(N, T)`` tensors that parts declare and fill. ``kept`` are the tokens that truncated sampling left to choose
    from, by sample; None where it left all. ``parents_NT`` (see `Sample`) is None where all samples are lines.
    Rows with equal ``trajectory_ids`` are samples of one trajectory; without any, each is one of its own.
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
    kept: Sequence[Kept] | None = None
    parents_NT: torch.Tensor | None = None
    trajectory_ids: Sequence[int] = ()

    def __post_init__(self) -> None:
        if not self.trajectory_ids:
            self.trajectory_ids = range(self.size)

    @property
    def size(self) -> int:
        """Number of samples N."""
        return len(self.group_ids)

    @property
    def outcome_N(self) -> torch.Tensor:
        """Outcomes (N,), float64: the reward without what only shapes it. Each trajectory's stands at its first sample; NaN
        at its others, and without a verdict."""
        import torch

        found: list[float] = []
        seen: set[int] = set()
        for sample, trajectory in zip(self.samples, self.trajectory_ids, strict=True):
            outcome = sample.trajectory.outcome
            found.append(math.nan if outcome is None or trajectory in seen else outcome)
            seen.add(trajectory)
        return torch.tensor(found, dtype=torch.double)

    @property
    def on_policy_NT(self) -> torch.Tensor:
        """1 where a token enters the loss and the sampler drew it (N, T): what ratios, clips and KLs are about. Tokens that
        are trained and not sampled are left to the objective of whoever put them there."""
        sampled = self.columns.get("sampled")
        return self.mask_NT if sampled is None else self.mask_NT * sampled
