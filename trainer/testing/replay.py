"""A run's events as a reader sees them: attempts in order, what a rewind retired left out, times set aside."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.contract import events as ev
from trainer.contract.drawn import DRAWN

TIMES = frozenset({"step_time", "time/rollout", "time/update"})


@dataclass
class Story:
    """What is visible: scalars by (iteration, key), evaluations by (iteration, name), figures by (iteration, key),
    and the rest by iteration."""

    scalars: dict[tuple[int, str], float | None] = field(default_factory=dict)
    axes: dict[int, dict[str, Any]] = field(default_factory=dict)
    evaluations: dict[tuple[int, str], list[dict[str, Any]]] = field(default_factory=dict)
    figures: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)
    rollouts: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    phases: dict[int, str] = field(default_factory=dict)
    checkpoints: dict[int, str] = field(default_factory=dict)
    last_message: str = ""

    def rewind(self, iteration: int) -> None:
        """Forgets everything after ``iteration``."""
        for name in ("scalars", "evaluations", "figures"):
            setattr(self, name, {k: v for k, v in getattr(self, name).items() if k[0] <= iteration})
        for name in ("axes", "rollouts", "phases", "checkpoints"):
            setattr(self, name, {k: v for k, v in getattr(self, name).items() if k <= iteration})

    def add(self, event: Any) -> None:
        """One event; a repeated iteration overwrites."""
        if isinstance(event, ev.Mark) and event.mark == "rewind":
            self.rewind(event.iteration)
        elif isinstance(event, ev.Scalars):
            at = event.axes.iteration
            self.scalars.update({(at, k): v for k, v in event.values.items() if k not in TIMES})
            self.axes[at] = event.axes.model_dump(exclude={"device_seconds"})
        elif isinstance(event, ev.Evaluation):
            self.evaluations[event.axes.iteration, event.name] = [p.model_dump() for p in event.problems]
        elif isinstance(event, DRAWN):
            self.figures[event.axes.iteration, event.key] = event.model_dump(exclude={"axes"})
        elif isinstance(event, ev.Rollouts):
            self.rollouts[event.axes.iteration] = [g.model_dump() for g in event.groups]
        elif isinstance(event, ev.Phase):
            self.phases[event.axes.iteration] = event.name
        elif isinstance(event, ev.Checkpoint):
            self.checkpoints[event.axes.iteration] = event.weights_hash
        elif isinstance(event, ev.State):
            self.last_message = event.message


def events_of(run: Path) -> list[ev.Envelope]:
    """All envelopes of a run folder, attempt by attempt; a torn last line (killed while writing) is left out."""
    out = []
    for folder in sorted((run / "attempts").iterdir(), key=lambda p: int(p.name)):
        text = (folder / "events.jsonl").read_text()
        out += [ev.parse_line(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return out


def story_of(run: Path) -> Story:
    """The visible story of a run folder."""
    story = Story()
    for envelope in events_of(run):
        story.add(envelope.event)
    return story
