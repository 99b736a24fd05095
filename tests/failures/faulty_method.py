"""A method of one's own that goes wrong in the iteration it is told: the tests name this file to the trainer."""

from __future__ import annotations

import base64
import json
import logging
import os
import subprocess
from typing import Any, Literal
from urllib.parse import quote

from trainer.contract import drawn
from trainer.contract import events as ev
from trainer.contract.config import setting
from trainer.core.registry import MethodParams, MethodSpec, Paper


class FaultyParams(MethodParams):
    """What goes wrong, and when."""

    fault: Literal["raise", "nan", "leak"] = setting(
        "raise", "Fault", "An exception, a loss that is no number, or a secret that is told to everyone."
    )
    at: int = setting(5, "At", "Iteration.", ge=1)


class Faulty:
    """An advantage shaper that is none."""

    def __init__(self, params: FaultyParams, config: Any) -> None:
        self.p = params

    def shape(self, advantage: Any, batch: Any, ctx: Any) -> Any:
        if self.p.fault == "leak" and ctx.iteration == self.p.at - 1:
            leak(os.environ["HF_TOKEN"], ctx)
        if ctx.iteration != self.p.at:
            return advantage
        if self.p.fault == "leak":
            raise RuntimeError(f"cannot log in with {os.environ['HF_TOKEN']}")
        if self.p.fault == "raise":
            raise RuntimeError("the moon is in the wrong place")
        return advantage * float("nan")


def leak(token: str, ctx: Any) -> None:
    """Writes the secret wherever a method can."""
    quoted = json.dumps({"Authorization": base64.b64encode(f"user:{token}".encode()).decode()})
    for text in (token, quote(token), quoted):
        print(text)
        logging.getLogger("faulty").warning("with %s", text)
        ctx.emit.log(text)
    subprocess.run(["/bin/echo", token], check=True)
    os.write(2, f"from C: {token}\n".encode())
    ctx.emit(ev.Text(axes=ctx.state.axes(), key="note", text=token))
    ctx.emit(ev.Table(axes=ctx.state.axes(), key="table", columns=[token], rows=[[{token: [token]}]]))
    # What is shortened, by the writer of events and by the method itself.
    axes, beginning = ctx.state.axes(), token[:-6]
    ctx.emit(drawn.text(axes, "long", "x" * (drawn.LONGEST_TEXT - len(beginning)) + token))
    ctx.emit(drawn.table(axes, "long", columns=["a"], rows=[["x" * (drawn.LONGEST_CELL - len(token)) + token]]))
    print(f"refused: {beginning}…")
    ctx.emit.log(f"refused: {beginning}")
    ctx.metrics[f"of/{token}"] = 1.0
    for group in ctx.groups:
        for trajectory in group.trajectories:
            trajectory.text = f"I know {token}"
            trajectory.answer = trajectory.canonical = token


SPEC = MethodSpec(
    slug="faulty",
    title="Faulty",
    summary="Goes wrong.",
    paper=Paper("None", "0000.00000"),
    params=FaultyParams,
    parts={"advantage": (f"{__name__}:Faulty",)},
)
