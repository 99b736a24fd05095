"""A method of one's own that goes wrong in the iteration it is told: the tests name this file to the trainer."""

from __future__ import annotations

from typing import Any, Literal

from trainer.contract.config import setting
from trainer.core.registry import MethodParams, MethodSpec, Paper


class FaultyParams(MethodParams):
    """What goes wrong, and when."""

    fault: Literal["raise", "nan"] = setting("raise", "Fault", "An exception, or a loss that is no number.")
    at: int = setting(5, "At", "Iteration.", ge=1)


class Faulty:
    """An advantage shaper that is none."""

    def __init__(self, params: FaultyParams, config: Any) -> None:
        self.p = params

    def shape(self, advantage: Any, batch: Any, ctx: Any) -> Any:
        if ctx.iteration != self.p.at:
            return advantage
        if self.p.fault == "raise":
            raise RuntimeError("the moon is in the wrong place")
        return advantage * float("nan")


SPEC = MethodSpec(
    slug="faulty",
    title="Faulty",
    summary="Goes wrong.",
    paper=Paper("None", "0000.00000"),
    params=FaultyParams,
    parts={"advantage": (f"{__name__}:Faulty",)},
)
