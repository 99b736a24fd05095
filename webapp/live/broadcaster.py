"""One reader for all open streams of a process.

Every `interval` it asks once for the live numbers of all watched runs, reads the deltas of those that moved, one for
each cursor that some stream stands at (mostly a single one), and puts them on the streams' queues. A stream therefore
gets exactly what it misses, be it new, late or reconnected, and never asks the database itself.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from django.db import close_old_connections

from webapp.live import selectors

log = logging.getLogger(__name__)

INTERVAL = 0.3
LONGEST_PAUSE = 5.0
QUEUE_LENGTH = 200
Delta = dict[str, Any]
T = TypeVar("T")


@dataclass(eq=False)
class Subscriber:
    """One open stream: the run, how far it is, and what waits for it. None on the queue ends the stream."""

    run_id: str
    cursor: int
    queue: "asyncio.Queue[Delta | None]" = field(default_factory=lambda: asyncio.Queue(QUEUE_LENGTH))


class Broadcaster:
    """`numbers` and `delta` read the database (see `webapp.live.selectors`); they run in one thread of their own."""

    def __init__(
        self,
        *,
        numbers: Callable[[Collection[str]], Awaitable[dict[str, int]]],
        delta: Callable[[str, int], Awaitable[Delta | None]],
        interval: float = INTERVAL,
    ) -> None:
        self.numbers = numbers
        self.delta = delta
        self.interval = interval
        self.subscribers: dict[str, set[Subscriber]] = defaultdict(set)
        self.task: asyncio.Task[None] | None = None
        self.wake = asyncio.Event()

    def subscribe(self, run_id: str, cursor: int) -> Subscriber:
        """A stream that wants everything after `cursor`. Starts the broadcaster with its first stream."""
        subscriber = Subscriber(run_id, cursor)
        self.subscribers[run_id].add(subscriber)
        self.wake.set()
        if self.task is None or self.task.done():
            self.task = asyncio.get_running_loop().create_task(self._run())
        return subscriber

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """The stream is closed. The broadcaster rests when it was the last."""
        watching = self.subscribers.get(subscriber.run_id)
        if watching is not None:
            watching.discard(subscriber)
            if not watching:
                del self.subscribers[subscriber.run_id]

    async def _run(self) -> None:
        pause = self.interval
        while self.subscribers:
            self.wake.clear()
            try:
                await self.tick()
                pause = self.interval
            except Exception:
                # The database is away, most likely: streams stay open, and catch up when it is back.
                log.exception("Live streams wait: what is new cannot be read.")
                pause = min(pause * 2, LONGEST_PAUSE)
            try:
                # A new stream does not wait for the next round.
                await asyncio.wait_for(self.wake.wait(), pause)
            except TimeoutError:
                continue

    async def tick(self) -> None:
        """One round over all watched runs."""
        newest = await self.numbers(list(self.subscribers))
        for run_id, watching in list(self.subscribers.items()):
            if run_id not in newest:
                self._end(watching)
                continue
            behind: dict[int, list[Subscriber]] = defaultdict(list)
            for subscriber in watching:
                if subscriber.cursor != newest[run_id]:
                    behind[subscriber.cursor].append(subscriber)
            for cursor, waiting in behind.items():
                # A cursor from the future belongs to another life of the database: start over.
                found = await self.delta(run_id, cursor if cursor < newest[run_id] else 0)
                self._hand_out(waiting, found)

    def _hand_out(self, waiting: Collection[Subscriber], found: Delta | None) -> None:
        if found is None:
            self._end(waiting)
            return
        for subscriber in waiting:
            if subscriber.queue.full():
                # It reads too slowly. It is closed, and gets all it missed in one piece when it comes back.
                self._end([subscriber])
                continue
            subscriber.cursor = found["cursor"]
            subscriber.queue.put_nowait(found)

    def _end(self, subscribers: Collection[Subscriber]) -> None:
        for subscriber in list(subscribers):
            self.unsubscribe(subscriber)
            while subscriber.queue.full():
                subscriber.queue.get_nowait()
            subscriber.queue.put_nowait(None)


_executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="live")
_broadcasters: dict[asyncio.AbstractEventLoop, Broadcaster] = {}


async def _in_thread(function: Callable[..., T], *args: Any) -> T:
    def work() -> T:
        close_old_connections()
        try:
            return function(*args)
        finally:
            close_old_connections()

    return await asyncio.get_running_loop().run_in_executor(_executor, work)


def broadcaster() -> Broadcaster:
    """The one of this process (of this event loop, to be exact)."""
    loop = asyncio.get_running_loop()
    for other in [known for known in _broadcasters if known.is_closed()]:
        del _broadcasters[other]
    if loop not in _broadcasters:
        _broadcasters[loop] = Broadcaster(
            numbers=partial(_in_thread, selectors.live_numbers), delta=partial(_in_thread, selectors.delta)
        )
    return _broadcasters[loop]
