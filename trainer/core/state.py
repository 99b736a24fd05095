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
    """A named policy. ``optimizer`` is None for a frozen one (reference, start of a phase)."""

    policy: Policy
    optimizer: torch.optim.Optimizer | None = None


@dataclass
class PhaseState:
    """Where the outer machine stands: ``name`` of the phase, iterations done in it, completed cycles."""

    name: str = "rl"
    done: int = 0
    cycle: int = 0


@dataclass
class TrainState:
    """Everything. ``memory`` holds JSON values and tensors that parts keep between iterations, by part name;
    ``evaluated`` is the last iteration whose scheduled evaluation is complete (−1: none)."""

    policies: dict[str, PolicyState]
    counters: Counters = field(default_factory=Counters)
    phase: PhaseState = field(default_factory=PhaseState)
    memory: dict[str, dict[str, Any]] = field(default_factory=dict)
    evaluated: int = -1

    def axes(self, **changes: Any) -> Axes:
        """The current place on every axis."""
        return Axes(**{**asdict(self.counters), "phase": self.phase.name, **changes})

    def memory_of(self, part: str, default: Callable[[], dict[str, Any]] = dict) -> dict[str, Any]:
        """A part's own memory, created on first use; it is saved and restored with the state."""
        return self.memory.setdefault(part, default())
