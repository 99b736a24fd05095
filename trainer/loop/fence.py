"""The trainer's own fence: an attempt that a later one has taken over stops by itself and saves nothing.

A process can sleep for hours (SIGSTOP, a suspended machine) and wake up beside its successor. What it then writes lies
in its own attempt's folder and is read by nobody; this ends it within a second, whoever supervises it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from trainer.core.errors import Superseded

EVERY = 1.0


class Fence:
    """Looks at most once in `EVERY` seconds whether a later attempt has its folder beside this one."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._number = int(folder.name)
        self._clock = clock
        self._looked = clock()

    def check(self, *, now: bool = False) -> None:
        """Raises Superseded when there is one. ``now`` looks even if it has just looked."""
        if not now and self._clock() - self._looked < EVERY:
            return
        self._looked = self._clock()
        later = [p.name for p in self._folder.parent.glob("*") if p.name.isdigit() and int(p.name) > self._number]
        if later:
            newest = max(later, key=int)
            raise Superseded(f"attempt {newest} of this run has begun; attempt {self._number} saves nothing more")
