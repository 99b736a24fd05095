"""The task's own checker as the reward: 1 for a right answer, 0 for a wrong, a missing or a truncated one."""

from __future__ import annotations

from trainer.core.context import Context
from trainer.core.errors import UnsqueezeError
from trainer.core.types import Group, Prompt, Verdict
from trainer.rewards.worker import RAISED


def checked(text: str, prompt: Prompt, ctx: Context) -> Verdict:
    """The task's verdict on a completion. A checker that raises costs this sample, which counts as wrong and is told; what
    may hang belongs into a process of its own (`trainer.rewards.worker`)."""
    try:
        return ctx.task.score(text, prompt)
    except (UnsqueezeError, OSError, MemoryError):
        raise
    except Exception as error:
        ctx.warn_once(
            f"The checker of {prompt.task} raised {type(error).__name__}: {error}; such samples count as wrong"
        )
        return Verdict(0.0, None, None, f"{prompt.task}: {RAISED}")


class TaskReward:
    """Component ``accuracy``; also notes each trajectory's answer class and canonical form."""

    weights = {"accuracy": 1.0}

    def score(self, group: Group, ctx: Context) -> list[dict[str, float | None]]:
        """One dict a trajectory. A truncated attempt is wrong, whatever its text says."""
        out: list[dict[str, float | None]] = []
        for t in group.trajectories:
            verdict = checked(t.text, group.prompt, ctx)
            t.answer, t.canonical, t.judged_by = verdict.answer, verdict.canonical, verdict.by
            out.append({"accuracy": 0.0 if t.truncated else verdict.reward})
        return out
