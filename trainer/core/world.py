"""The processes that train one run together (``hardware.processes``, or torchrun).

Each process runs the whole loop on the same data and decides the same, so that no part needs to know of the others. What is
divided is what costs: drawing samples, judging them, and forward and backward passes. Only the first one writes.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from trainer.core.errors import UnsqueezeError

T = TypeVar("T")

PATIENCE = timedelta(minutes=30)
"""How long a process waits for another one before it gives up. One that has died is noticed at once."""
FAREWELL = timedelta(seconds=10)
_FAILED = "failed"


class World:
    """One process alone."""

    rank = 0
    size = 1

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes."""
        return self.rank == 0

    def together(self, work: Callable[[], T]) -> list[T]:
        """What each process makes of ``work``, by rank. Where it raises in one, the first such error is raised in all."""
        return [work()]

    def first_only(self, work: Callable[[], T]) -> T:
        """What the first process makes of ``work``, which the others do not do; its error is raised in all."""
        return self.together(lambda: work() if self.first else None)[0]  # type: ignore[return-value]

    def share_of(self, keys: Sequence[Any]) -> list[list[int]]:
        """Positions of ``keys`` by rank; equal keys stay together."""
        rank = {key: i % self.size for i, key in enumerate(dict.fromkeys(keys))}
        return [[i for i, key in enumerate(keys) if rank[key] == r] for r in range(self.size)]

    def leave(self, code: int, message: str) -> tuple[int, str]:
        """Says how this process ends and waits a little for the others to do so. Returns how the run ended: where another
        process failed first, that one's code and message."""
        return code, message


class Processes(World):
    """Several, joined by the variables that torchrun sets (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, timeout=PATIENCE)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._dist: Any = dist
        # Beside the group of the collectives on weights, so that neither waits for the other.
        self._group = dist.new_group(backend="gloo", timeout=PATIENCE)
        self._store: Any = dist.distributed_c10d._get_default_store()

    def together(self, work: Callable[[], T]) -> list[T]:
        """See `World`. What is exchanged comes from this run's own processes only."""
        failed: Exception | None = None
        own: Any = None
        try:
            own = work()
        except Exception as error:
            failed = error
        found: list[Any] = [None] * self.size
        self._dist.all_gather_object(found, (_sendable(failed), own), group=self._group)
        errors = [error for error, _ in found if error is not None]
        if failed is not None and found[self.rank][0] is errors[0]:
            raise failed
        if errors:
            raise errors[0]
        return [value for _, value in found]

    def leave(self, code: int, message: str) -> tuple[int, str]:
        """See `World`."""
        with contextlib.suppress(RuntimeError):
            if code and not self._store.check([_FAILED]):
                self._store.set(_FAILED, json.dumps([code, f"process {self.rank + 1} of {self.size}: {message}"]))
            elif code:
                first_code, first_message = json.loads(self._store.get(_FAILED))
                code, message = (first_code, first_message) if first_code != code else (code, message)
            self._store.set(f"left/{self.rank}", "1")
            # The first one holds the store. Where torchrun does, it ends all as soon as one has left with an error.
            if self.first or "TORCHELASTIC_RUN_ID" in os.environ:
                self._store.wait([f"left/{rank}" for rank in range(self.size)], FAREWELL)
        return code, message


def _sendable(error: Exception | None) -> Exception | None:
    """Our own errors hold texts only; another one may hold anything, and goes as its text."""
    if error is None or isinstance(error, (UnsqueezeError, OSError, MemoryError)):
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")


def is_one_of_several() -> bool:
    """Whether this process was started as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def join_world() -> World:
    """The processes of this run, joined where there are several."""
    return Processes() if is_one_of_several() else World()
