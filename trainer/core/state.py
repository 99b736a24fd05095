"""`TrainState`: all that a run is at an iteration boundary, and all that a checkpoint holds.

The loop is a function of this object, so a run can be stopped anywhere and resumed to the same bits, and a teacher's
run can contain a student's. Randomness needs no state: it is counter-based (core/rng.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from trainer.contract.events import Axes

if TYPE_CHECKING:
    import torch

    from trainer.policy.load import Policy
    from trainer.policy.shards import Shards


@dataclass
class Counters:
    """Cumulative counts; the x axes of every chart (see `trainer.contract.events.Axes`)."""

    iteration: int = 0
    optimizer_step: int = 0
    policy_version: int = 0
    prompts: int = 0
    rollouts: int = 0
    sampled_tokens: int = 0
    trained_tokens: int = 0
    discarded_tokens: int = 0
    evaluation_tokens: int = 0
    device_seconds: float = 0.0


@dataclass
class PolicyState:
    """A named policy. ``optimizer`` is None for a frozen one (reference, start of a phase). Where several processes train it,
    ``shards`` holds what the optimiser moves, and ``policy`` is the whole copy that follows it."""

    policy: Policy
    optimizer: torch.optim.Optimizer | None = None
    shards: Shards | None = None

    @property
    def trained(self) -> torch.nn.Module:
        """The model whose parameters the optimiser has."""
        return self.policy.model if self.shards is None else self.shards.model


@dataclass
class HeadState:
    """An auxiliary network on the policy's hidden states, and its optimiser."""

    module: torch.nn.Module
    optimizer: torch.optim.Optimizer


@dataclass
class PhaseState:
    """Where the outer machine stands: ``name`` of the phase, iterations done in it, completed cycles. ``trained`` is the
    phase of the last completed iteration, which differs from ``name`` at a change; empty before the first."""

    name: str = "rl"
    done: int = 0
    cycle: int = 0
    trained: str = ""


@dataclass
class TrainState:
    """Everything. ``heads`` are the policy's extra outputs (`trainer.policy.heads`); ``memory`` holds JSON values and
    tensors that parts keep between iterations, by part name; ``evaluated`` is the last iteration whose scheduled evaluation
    is complete (−1: none), ``validation`` the numbers of the validation at iteration ``validated``."""

    policies: dict[str, PolicyState]
    counters: Counters = field(default_factory=Counters)
    phase: PhaseState = field(default_factory=PhaseState)
    memory: dict[str, dict[str, Any]] = field(default_factory=dict)
    evaluated: int = -1
    validation: dict[str, float] = field(default_factory=dict)
    validated: int = -1
    heads: dict[str, HeadState] = field(default_factory=dict)

    def axes(self, **changes: Any) -> Axes:
        """The current place on every axis: where the last completed iteration has led."""
        return Axes(**{**asdict(self.counters), "phase": self.phase.trained or self.phase.name, **changes})

    def memory_of(self, part: str, default: Callable[[], dict[str, Any]] = dict) -> dict[str, Any]:
        """A part's own memory, created on first use; it is saved and restored with the state."""
        return self.memory.setdefault(part, default())
