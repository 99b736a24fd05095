"""The task's own checker as the reward: 1 for a right answer, 0 for a wrong, a missing or a truncated one."""

from __future__ import annotations

from trainer.core.context import Context
from trainer.core.types import Group


class TaskReward:
    """Component ``accuracy``; also notes each trajectory's answer class and canonical form."""

    weights = {"accuracy": 1.0}

    def score(self, group: Group, ctx: Context) -> list[dict[str, float | None]]:
        """One dict a trajectory. A truncated attempt is wrong, whatever its text says."""
        out: list[dict[str, float | None]] = []
        for t in group.trajectories:
            verdict = ctx.task.score(t.text, group.prompt)
            t.answer, t.canonical = verdict.answer, verdict.canonical
            out.append({"accuracy": 0.0 if t.truncated else verdict.reward})
        return out
