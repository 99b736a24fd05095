"""Equality as mathematics by math-verify, in a process of its own with a hard limit of CPU time."""

from __future__ import annotations

import functools
import importlib.util
import threading

from trainer.rewards.worker import CPU_SECONDS, CheckerLost, Worker


def available() -> bool:
    """Whether math-verify is installed."""
    return importlib.util.find_spec("math_verify") is not None


class MathProver:
    """Callable (gold, answer) → True, False, or why there is no answer: "undecided" (one of them is unreadable), or what
    became of the process: "out of time", "crashed".

    A question may take `seconds` of CPU time. Safe to share between threads.
    """

    def __init__(self, *, seconds: float = CPU_SECONDS) -> None:
        self._worker = Worker("trainer.rewards.math_worker", seconds=seconds)
        self._lock = threading.Lock()
        self._cached = functools.lru_cache(maxsize=1 << 16)(self._ask)

    def __call__(self, gold: str, answer: str) -> bool | str:
        with self._lock:
            return self._cached(gold, answer)

    def close(self) -> None:
        """Ends the process."""
        self._worker.close()

    def _ask(self, gold: str, answer: str) -> bool | str:
        try:
            said = self._worker.ask([gold, answer])
        except CheckerLost as error:
            return str(error)
        return "undecided" if said is None else bool(said)
