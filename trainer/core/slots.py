"""The extension points, as protocols. A method fills slots; it never edits the loop.

Order of an iteration: phases → curriculum → prompting → rollout plan → reward → transform → samples → old and reference
log-probs → advantage → objective terms, backward, update → signals → evaluation, checkpoint.

A part is built once a run with ``Part(params, config)``. It keeps what must survive a stop in
``ctx.state.memory_of(name)`` and nothing in itself. It may change state only after the iteration's last rollout, because
a stop during sampling saves the boundary before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from trainer.core.types import Batch, Group, Prompt, Sample, Trajectory

if TYPE_CHECKING:
    import torch

    from trainer.core.context import Context

Aggregation = Literal["seq-mean-token-mean", "token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]


@dataclass(frozen=True)
class Draw:
    """A prompt that the curriculum chose; ``probability`` is its chance to be in the iteration."""

    prompt: Prompt
    ordinal: int = 0
    probability: float = 1.0


@dataclass(frozen=True)
class Term:
    """One summand of the loss, not yet divided.

    ``value`` (N, T) for token-level terms, reduced by ``aggregation``; (N,) for sequence-level terms, summed and divided
    by the global count named in ``denominator``. Terms of a micro-batch are partial sums of the whole optimiser step.
    """

    name: str
    value: torch.Tensor
    coefficient: float = 1.0
    aggregation: Aggregation | None = None
    denominator: Literal["sequences", "groups"] = "sequences"


@dataclass(frozen=True)
class Scores:
    """The forward pass over a micro-batch, aligned with its ids: current log-probs (with gradient) and entropies."""

    logprobs_NT: torch.Tensor
    entropy_NT: torch.Tensor


@dataclass(frozen=True)
class TransformResult:
    """What is trained, what was thrown away (the curriculum still observes it), and how many groups to draw again."""

    groups: list[Group]
    dropped: list[Group] = field(default_factory=list)
    refill: int = 0


@dataclass(frozen=True)
class PhasePlan:
    """What the outer machine wants from this iteration.

    ``objectives`` replaces the base objective where given; ``transforms`` run after the run's own; ``advantages`` False
    leaves the advantage out; ``lr_scale`` multiplies the learning rate; ``single_step`` takes one optimiser step
    on the whole batch whatever the algorithm's epochs and mini-batches.
    """

    name: str
    title: str
    objectives: tuple[Objective, ...] | None = None
    transforms: tuple[Transform, ...] = ()
    advantages: bool = True
    lr_scale: float = 1.0
    single_step: bool = False


class Curriculum(Protocol):
    """Chooses prompts."""

    def select(self, count: int, ctx: Context) -> list[Draw]:
        """``count`` draws for the iteration; randomness from ``ctx.rng`` only."""

    def observe(self, groups: Sequence[Group], dropped: Sequence[Group], ctx: Context) -> None:
        """Sees every group of the iteration, dropped ones too."""


class Prompting(Protocol):
    """Rewrites the prompt that the policy sees while sampling; the training prompt stays unless the span says so."""

    def rewrite(self, prompt: Prompt, ctx: Context) -> Prompt: ...


class RolloutPlan(Protocol):
    """Turns draws into groups of trajectories."""

    def rollout(self, draws: Sequence[Draw], ctx: Context) -> list[Group]: ...


class Reward(Protocol):
    """Scores a whole group; named components, one dict a trajectory; None is "no verdict"."""

    weights: dict[str, float]
    """Component name → weight in the training reward; weight 0 is monitored only."""

    def score(self, group: Group, ctx: Context) -> list[dict[str, float | None]]: ...


class Transform(Protocol):
    """Filters, replaces or injects on rewarded groups."""

    def apply(self, groups: list[Group], ctx: Context) -> TransformResult: ...


class SampleMaker(Protocol):
    """Trajectory → linear samples with masks."""

    def samples(self, trajectory: Trajectory, group: Group, ctx: Context) -> list[Sample]: ...


class Advantage(Protocol):
    """Shapes advantages. The base row's estimator gives the first (N,); shapers receive and return (N,) or (N, T)."""

    def shape(self, advantage: torch.Tensor, batch: Batch, ctx: Context) -> torch.Tensor: ...


class Objective(Protocol):
    """``prepare`` once on the whole batch without gradient (columns it needs go into ``batch.columns``); ``terms`` on
    each micro-batch, whose columns are the batch's rows.

    ``needs`` names the columns that the loop fills beforehand: ``advantage``, ``old_logprobs``, ``reference_logprobs``
    (base policy), ``phase_start_logprobs`` (filled only while such a policy is kept)."""

    needs: frozenset[str]

    def prepare(self, batch: Batch, ctx: Context) -> None: ...

    def terms(self, micro: Batch, scores: Scores, ctx: Context) -> list[Term]: ...


class Update(Protocol):
    """Wraps the optimiser step."""

    def before_step(self, ctx: Context) -> None: ...

    def after_step(self, ctx: Context) -> None: ...


class Phases(Protocol):
    """The outer machine. ``plan`` is read-only; ``advance`` moves it after a completed iteration."""

    def plan(self, ctx: Context) -> PhasePlan: ...

    def advance(self, ctx: Context) -> None: ...


class Diagnostic(Protocol):
    """Measures at evaluation time; its numbers go into ``ctx.metrics``."""

    def measure(self, ctx: Context, results: Any) -> None: ...
