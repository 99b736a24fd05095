"""Drawing divided among processes: each serves a share of the requests, and all get all completions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainer.core.world import World
from trainer.rollout.sampler import Completion, Progress, Request, Sampler, SamplingParams, StreamKey


class SharedSampler:
    """A sampler like the one inside. Requests, and so groups, are never split; each process calls it with the same ones."""

    def __init__(self, inner: Sampler, world: World) -> None:
        self.inner, self.world = inner, world

    @property
    def capabilities(self) -> frozenset[str]:
        """Those of the engine inside."""
        return self.inner.capabilities

    @property
    def engine(self) -> str:
        """The engine inside: who draws a sample does not change it."""
        return self.inner.engine

    def generate(
        self,
        requests: Sequence[Request],
        params: SamplingParams,
        stream: StreamKey,
        *,
        on_progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> list[list[Completion]]:
        """See the protocol. One process that stops stops all."""
        rank, size = self.world.rank, self.world.size
        parts = self.world.together(
            lambda: self.inner.generate(
                requests[rank::size], params, stream, on_progress=on_progress, should_stop=should_stop
            )
        )
        return [parts[i % size][i // size] for i in range(len(requests))]

    def refresh(self) -> None:
        """See the protocol."""
        self.inner.refresh()

    def close(self) -> None:
        """See the protocol."""
        self.inner.close()
