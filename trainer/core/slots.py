"""The extension points, as protocols. A method fills slots; it never edits the loop.

Order of an iteration: phases → curriculum → prompting → rollout plan → reward → transform → samples → old and reference
log-probs → advantage base → advantage → objective terms, backward, update → signals → evaluation, checkpoint. A policy
objective is an `Objective` that takes the place of the base row's policy term; others are added to it.

A part is built once a run with ``Part(params, config)``. It keeps what must survive a stop in
``ctx.state.memory_of(name)`` and nothing in itself. It may change state only after the iteration's last rollout, because
a stop during sampling saves the boundary before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from trainer.contract.algorithm import AggregationName
from trainer.core.types import Batch, Group, Prompt, Sample, Trajectory

if TYPE_CHECKING:
    import torch

    from trainer.contract.events import Evaluation
    from trainer.core.context import Context


@dataclass(frozen=True)
class Draw:
    """A prompt that the curriculum chose; ``probability`` is its chance to be in the iteration, where it may come several
    times how often it is expected there."""

    prompt: Prompt
    ordinal: int = 0
    probability: float = 1.0


@dataclass(frozen=True)
class Term:
    """One summand of the loss, not yet divided.

    ``value`` (N, T) for token-level terms, reduced by ``aggregation``; (N,) for sequence-level terms, summed and divided
    by the global count named in ``denominator``. Terms of a micro-batch are partial sums of the whole optimiser step.
    ``among`` names a 0/1 column (N, T), "mask/…", which narrows it: means are then over its tokens, and over the sequences
    that have one.
    """

    name: str
    value: torch.Tensor
    coefficient: float = 1.0
    aggregation: AggregationName | None = None
    denominator: Literal["sequences", "groups"] = "sequences"
    among: str | None = None


@dataclass(frozen=True)
class Scores:
    """The forward pass over a micro-batch, aligned with its ids: current log-probs (with gradient), entropies, and the
    output (N, T) of each head of the policy (see `trainer.policy.heads`)."""

    logprobs_NT: torch.Tensor
    entropy_NT: torch.Tensor
    heads: Mapping[str, torch.Tensor] = field(default_factory=dict)
    collision_NT: torch.Tensor | None = None


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
    on the whole batch whatever the algorithm's epochs and mini-batches. ``groups`` are trained in place of new rollouts: they
    were counted, observed and kept when they were drawn.
    """

    name: str
    title: str
    objectives: tuple[Objective, ...] | None = None
    transforms: tuple[Transform, ...] = ()
    advantages: bool = True
    lr_scale: float = 1.0
    single_step: bool = False
    groups: tuple[Group, ...] | None = None


class Curriculum(Protocol):
    """Chooses prompts."""

    def select(self, count: int, ctx: Context) -> list[Draw]:
        """``count`` draws for the iteration; randomness from ``ctx.rng`` only. Called again where groups are replaced:
        ``ctx.drawn`` then holds the iteration's draws so far, and fewer may come back when there are no others."""

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
    # Optional: ``shaping = True`` where it only shapes the reward and is no part of a trajectory's outcome.

    def score(self, group: Group, ctx: Context) -> list[dict[str, float | None]]: ...


class Transform(Protocol):
    """Filters, replaces or injects on rewarded groups. Pure: it sees all of the iteration's groups again after more were
    drawn. New trajectories (``rewards`` empty) are rewarded by the loop, with their group, before the next transform.

    Optional: ``observe(groups, ctx)``, called once with all groups as they were rolled out, when the last rollout is in and
    before the update; there it may change state."""

    def apply(self, groups: list[Group], ctx: Context) -> TransformResult: ...


class SampleMaker(Protocol):
    """Trajectory → linear samples with masks."""

    def samples(self, trajectory: Trajectory, group: Group, ctx: Context) -> list[Sample]: ...


class AdvantageBase(Protocol):
    """Takes the place of the algorithm's own estimate, before shapers change it.

    Optional: ``needs``, the columns that it reads ("old_logprobs", "old_collision", …), as an objective's."""

    def estimate(self, batch: Batch, ctx: Context) -> torch.Tensor:
        """Advantages (N,) or (N, T), 0 without a verdict."""


class Advantage(Protocol):
    """Shapes advantages. The base row's estimator gives the first (N,); shapers receive and return (N,) or (N, T)."""

    def shape(self, advantage: torch.Tensor, batch: Batch, ctx: Context) -> torch.Tensor: ...


class Objective(Protocol):
    """``prepare`` once on the whole batch without gradient (columns it needs go into ``batch.columns``); ``terms`` on
    each micro-batch, whose columns are the batch's rows.

    ``needs`` names the columns that the loop fills beforehand: ``advantage``, ``old_logprobs``, ``old_entropy``,
    ``reference_logprobs`` (base policy), ``phase_start_logprobs`` (filled only while such a policy is kept),
    ``old_<head>`` for a head's output; and ``entropy_gradient``, which is no column: the entropies of ``Scores`` then
    carry gradient.

    Optional: ``before_step(ctx)`` and ``after_step(ctx)`` around each optimiser step, ``norm_key``, under which the
    gradient's norm is logged too."""

    needs: frozenset[str]

    def prepare(self, batch: Batch, ctx: Context) -> None: ...

    def terms(self, micro: Batch, scores: Scores, ctx: Context) -> list[Term]: ...


@dataclass
class Step:
    """An optimiser step being taken: its mini-batch, the loss on it, and the gradient's L2 norm before clipping (NaN until
    that is known)."""

    batch: Batch
    loss: float
    norm: float = float("nan")


class Steps(Protocol):
    """What an `Update` may ask of the loop, with the run's objectives or others in their place. ``batch`` is the
    iteration's or one of an earlier iteration, with the columns that the objectives need."""

    def take(self, batch: Batch, objectives: Sequence[Objective] | None = None) -> None:
        """A whole optimiser step on the batch: gradient, clipping, weights, counters. Every `Update` sees it as any other."""

    def gradient(self, batch: Batch, objectives: Sequence[Objective] | None = None) -> list[torch.Tensor | None]:
        """The loss's gradient by the policy's parameters, in their order (None: it doesn't depend on one); gradients that
        are being gathered stay as they are."""

    def scores(self, batch: Batch) -> Scores:
        """A forward pass of the policy as it is now, without gradient."""


class Update:
    """Around the optimiser steps of an iteration; a part overrides what it needs.

    In `before` and `after` it may keep and put back weights (accept or undo), ask for a forward pass or a gradient, and take
    further steps, which come to its `gradients` and `apply` too. ``needs`` are columns, as an objective's.
    """

    needs: frozenset[str] = frozenset()

    def before(self, batch: Batch, steps: Steps, ctx: Context) -> None:
        """Once an iteration, with its whole batch, before the first step."""

    def gradients(self, step: Step, ctx: Context) -> None:
        """The gradients of a step are complete and not yet clipped: mask, rescale or replace them in place."""

    def apply(self, step: Step, proceed: Callable[[], None], ctx: Context) -> None:
        """Wraps the change of the weights; ``proceed`` makes it (and calls the parts declared later). A part that doesn't
        call it leaves the weights as they are."""
        proceed()

    def after(self, batch: Batch, steps: Steps, ctx: Context) -> None:
        """Once an iteration, after the last step."""


class Phases(Protocol):
    """The outer machine. ``plan`` is read-only; ``advance`` moves it after a completed iteration."""

    def plan(self, ctx: Context) -> PhasePlan: ...

    def advance(self, ctx: Context) -> None: ...


class Diagnostic(Protocol):
    """Measures at the validations of a run; its numbers go into ``ctx.metrics``, its pictures through ``ctx.emit``."""

    def measure(self, ctx: Context, event: Evaluation, prompts: tuple[Prompt, ...]) -> None:
        """``event`` has the counts of each problem, ``prompts`` the problems in the same order."""
