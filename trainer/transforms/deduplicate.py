"""Distinct admissible rollouts of a prompt, by the task's canonical form: a + b and b + a are one."""

from __future__ import annotations

from dataclasses import replace

from trainer.core.context import Context
from trainer.core.slots import TransformResult
from trainer.core.types import Group, Trajectory


def distinct(group: Group) -> list[Trajectory]:
    """First rollout of each canonical form, in order of appearance; truncated and inadmissible ones are left out."""
    seen: dict[str, Trajectory] = {}
    for trajectory in group.trajectories:
        if trajectory.canonical is not None and not trajectory.truncated:
            seen.setdefault(trajectory.canonical, trajectory)
    return list(seen.values())


class KeepDistinct:
    """Every group keeps its distinct admissible rollouts only; groups may become empty."""

    def apply(self, groups: list[Group], ctx: Context) -> TransformResult:
        """New groups; the given ones stay as they are."""
        return TransformResult([replace(g, trajectories=distinct(g)) for g in groups])
