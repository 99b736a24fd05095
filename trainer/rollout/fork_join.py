"""Fork and join (ThreadWeaver, arXiv 2512.07843): a policy writes outlines, every outline's thread is decoded by a request of
its own, the threads' texts are put one after the other, and decoding goes on.

Every piece is an ordinary completion request, so any sampler serves. What comes out is a DAG: a node a piece, forked nodes
have one parent, a join has all threads as parents. The join goes on behind its first thread and repeats the others, so that
the path by first parents is what the model saw.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from trainer.contract.config import RlConfig
from trainer.core.context import Context
from trainer.core.errors import ConfigError
from trainer.core.slots import Draw
from trainer.core.types import EndReason, Group, Node, Span, Trajectory
from trainer.policy.load import Policy
from trainer.rollout.sampler import Completion, Request, SamplingParams, StreamKey

PIECES = ("parallel", "end_parallel", "outlines", "end_outlines", "outline", "end_outline", "thread", "end_thread")
STYLES: dict[str, tuple[str, ...]] = {
    "xml": ("<Parallel>", "</Parallel>", "<Outlines>", "</Outlines>", "<Outline>", "</Outline>", "<Thread>", "</Thread>"),
    "letters": tuple("pqocabtu"),
}  # fmt: skip
"""How the tags are written: the paper's, or single letters for a character tokenizer."""


@dataclass(frozen=True)
class Tags:
    """The tags as token ids, one each, and the header of a thread."""

    ids: dict[str, int]
    policy: Policy
    line: str

    @classmethod
    def of(cls, style: str, policy: Policy) -> Tags:
        """Raises ConfigError for a tag that is not one token of the policy's tokenizer."""
        ids = {}
        for name, text in zip(PIECES, STYLES[style], strict=True):
            found = policy.tokenizer(text, add_special_tokens=False)["input_ids"]
            if len(found) != 1 or found[0] == policy.tokenizer.unk_token_id:
                raise ConfigError(
                    f"threadweaver: the tag {text!r} is {len(found)} token(s) of this tokenizer, expected one it knows; add "
                    "it as a special token, or choose other tags"
                )
            ids[name] = found[0]
        return cls(ids, policy, "\n" if style == "xml" else "")

    def header(self, number: int) -> tuple[int, ...]:
        """What the orchestrator writes before thread ``number``."""
        before, after = (self._encode(text) for text in (self.line, f"{self.line}{number}:"))
        return (*before, self.ids["thread"], *after)

    def outlines(self, ids: Sequence[int]) -> list[int]:
        """The numbers of the outlines in the last outlines block of ``ids``: each once, in order; [] where none is read."""
        last = max((i for i, token in enumerate(ids) if token == self.ids["outlines"]), default=len(ids))
        numbers: dict[int, None] = {}
        for i in range(last, len(ids)):
            if ids[i] == self.ids["outline"]:
                found = re.match(r"\s*([0-9]{1,4})", str(self.policy.tokenizer.decode(list(ids[i + 1 : i + 9]))))
                if found:
                    numbers.setdefault(int(found[1]))
        return list(numbers)

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.policy.tokenizer(text, add_special_tokens=False)["input_ids"])


def critical_path(ids: Sequence[int], tags: dict[str, int]) -> tuple[int, int]:
    """(T, C): tokens, and those of the critical path (the released code's rules).

    Outside a parallel block every token counts, the block's own tags too. Inside, tokens outside threads and each thread tag
    count fully, and of the threads' bodies only the longest. In a thread everything but its end is literal; what is not closed
    at the end counts as if it were.
    """
    path = longest = body = 0
    state: Literal["outside", "block", "thread"] = "outside"
    for token in ids:
        if state == "thread":
            if token == tags["end_thread"]:
                longest, body, state = max(longest, body), 0, "block"
                path += 1
            else:
                body += 1
            continue
        path += 1
        if state == "outside" and token == tags["parallel"]:
            state = "block"
        elif state == "block" and token == tags["thread"]:
            state = "thread"
        elif state == "block" and token == tags["end_parallel"]:
            path, longest, state = path + longest, 0, "outside"
    return len(ids), path + max(longest, body)


def acceleration(total: int, path: int) -> float:
    """η = 1 − C/T in [0, 1); 0 of nothing."""
    return 1 - path / total if total else 0.0


def answer_ids(trajectory: Trajectory) -> list[int]:
    """What the model saw after the prompt."""
    return [i for span in trajectory.spans() if span.kind != "prompt" for i in span.ids]


def is_thread(node: Node) -> bool:
    """Whether the node is a forked thread, with the header that the orchestrator wrote."""
    return bool(node.spans) and node.spans[0].role == "thread"


@dataclass
class Weave:
    """One trajectory under way. ``context`` is what the model sees after the prompt, ``limit`` the most tokens it may have,
    copies not counted twice."""

    draw: int
    index: int
    nodes: list[Node]
    limit: int
    context: list[int] = field(default_factory=list)
    threads: list[Node] = field(default_factory=list)
    limit_of_threads: int = 0
    pieces: int = 0
    end: EndReason | None = None

    @property
    def left(self) -> int:
        """Tokens that may still come."""
        return self.limit - len(self.context)

    def fork(self, numbers: Sequence[int], tags: Tags) -> None:
        """One node a thread, with its header."""
        parent = self.nodes[-1].id
        for number in numbers:
            header = Span(tags.header(number), "template", role="thread", origin="env")
            self.threads.append(Node(parent + 1 + len(self.threads), [header], (parent,)))
        self.nodes += self.threads

    def share(self, numbers: Sequence[int], tags: Tags) -> int:
        """The most tokens of each of these threads, when they share evenly what the tags leave of the limit."""
        written = sum(len(tags.header(n)) + 1 for n in numbers) + 1
        return (self.left - written) // len(numbers)

    def join(self, tags: Tags) -> None:
        """The node behind all threads; the trajectory goes on there unless a thread was cut off or ended the answer."""
        first, *others = self.threads
        close = Span((tags.ids["end_thread"],), "template", origin="env")
        spans: list[Span] = []
        for thread in self.threads:
            if thread is not first:
                ids = tuple(i for s in thread.spans for i in s.ids)
                spans.append(Span(ids, "copy", source=thread.id))
            if thread.spans[-1].ids[-1] != tags.ids["end_thread"]:
                spans.append(close)
        if self.end is not None:
            spans.append(Span((tags.ids["end_parallel"],), "template", origin="env"))
        self.context += [i for s in first.spans for i in s.ids] + [i for s in spans for i in s.ids]
        self.nodes.append(Node(first.id + 1 + len(others), spans, tuple(t.id for t in self.threads)))
        self.threads = []


class ForkJoin:
    """G trajectories a prompt, each a state machine of sequential and parallel pieces; all that wait are one call."""

    def __init__(self, style: str, max_phases: int, config: RlConfig) -> None:
        self.style, self.max_phases, self.config = style, max_phases, config

    def rollout(self, draws: Sequence[Draw], ctx: Context) -> list[Group]:
        """One group a draw, in order. ``sampling.max_new_tokens`` bounds a whole trajectory, threads one after the other."""
        policy, size = ctx.policy, self.config.algorithm.num_generations
        tags, limit = Tags.of(self.style, policy), self.config.sampling.max_new_tokens
        prompts = [policy.encode_prompt(d.prompt.messages) for d in draws]
        weaves = [
            Weave(at, i, [Node(0, [Span(prompts[at], "prompt", origin="env")])], limit)
            for at in range(len(draws))
            for i in range(size)
        ]
        for _ in range(self.max_phases):
            active = [w for w in weaves if w.end is None]
            if not active:
                break
            self._sequential([w for w in active if not w.threads], draws, prompts, tags, ctx)
            self._parallel([w for w in active if w.threads], draws, prompts, tags, ctx)
        groups = []
        for at, draw in enumerate(draws):
            own = [
                Trajectory(
                    w.nodes, draw.prompt.uid, w.index, w.end or "length", text=policy.decode_completion(w.context)
                )
                for w in weaves[at * size : (at + 1) * size]
            ]
            groups.append(Group(draw.prompt, own, f"{draw.prompt.uid}:{draw.ordinal}", draw.ordinal, draw.probability))
        return groups

    def _sequential(
        self,
        weaves: Sequence[Weave],
        draws: Sequence[Draw],
        prompts: Sequence[tuple[int, ...]],
        tags: Tags,
        ctx: Context,
    ) -> None:
        """Goes on to the end of the answer, or of outlines: then it forks, where one can be read."""
        stop = tags.ids["end_outlines"]
        requests = [self._request(w, (), w.left, draws, prompts) for w in weaves]
        for weave, completion in zip(weaves, self._generate(requests, stop, ctx), strict=True):
            weave.nodes[-1].spans.append(_sampled(completion, ctx))
            weave.context += completion.ids
            if completion.ids[-1] != stop:
                weave.end = completion.finish
            elif numbers := tags.outlines(weave.context):
                weave.limit_of_threads = weave.share(numbers, tags)
                if weave.limit_of_threads < 1:
                    weave.end = "length"
                else:
                    weave.fork(numbers, tags)
            elif weave.left < 1:
                weave.end = "length"

    def _parallel(
        self,
        weaves: Sequence[Weave],
        draws: Sequence[Draw],
        prompts: Sequence[tuple[int, ...]],
        tags: Tags,
        ctx: Context,
    ) -> None:
        """Every thread by a request of its own, then the join. Threads share what is left of the limit evenly."""
        requests = []
        for weave in weaves:
            limit = weave.limit_of_threads
            requests += [self._request(weave, t.spans[0].ids, limit, draws, prompts) for t in weave.threads]
        found = iter(self._generate(requests, tags.ids["end_thread"], ctx))
        for weave in weaves:
            for thread in weave.threads:
                completion = next(found)
                thread.spans.append(_sampled(completion, ctx))
                if completion.ids[-1] != tags.ids["end_thread"] and weave.end != "length":
                    weave.end = completion.finish
            weave.join(tags)

    def _request(
        self,
        weave: Weave,
        header: tuple[int, ...],
        limit: int,
        draws: Sequence[Draw],
        prompts: Sequence[tuple[int, ...]],
    ) -> Request:
        """The next piece; each has random numbers of its own."""
        weave.pieces += 1
        draw = draws[weave.draw]
        return Request(
            draw.prompt.uid, prompts[weave.draw], 1, draw=draw.ordinal, node=weave.pieces, first_sample=weave.index,
            prefix_ids=(*weave.context, *header), max_new_tokens=limit,
        )  # fmt: skip

    def _generate(self, requests: Sequence[Request], stop: int, ctx: Context) -> list[Completion]:
        """One completion a request, ended by ``stop`` too."""
        params = SamplingParams.of(self.config.sampling, (*ctx.policy.eos_ids, stop))
        stream = StreamKey(seed=self.config.seed, scope=ctx.scope, purpose="train", iteration=ctx.iteration)
        found = ctx.sampler.generate(requests, params, stream, should_stop=ctx.should_stop)
        return [completion for (completion,) in found]


def _sampled(completion: Completion, ctx: Context) -> Span:
    return Span(
        tuple(completion.ids), "answer", sampled=True, trained=True, logprobs=tuple(completion.logprobs),
        policy_version=ctx.state.counters.policy_version,
    )  # fmt: skip


def predecessors(trajectory: Trajectory) -> list[int]:
    """For each token behind the prompt, nodes in their order, the place of the token before it (−1: the prompt's last). A
    node follows its first parent."""
    parents: list[int] = []
    last: dict[int, int] = {}
    for node in trajectory.nodes:
        at = last[node.parents[0]] if node.parents else -1
        for _ in (i for span in node.spans if span.kind != "prompt" for i in span.ids):
            parents.append(at)
            at = len(parents) - 1
        last[node.id] = at
    return parents
