"""One reader, many streams; each gets exactly what it misses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest

from webapp.live.broadcaster import QUEUE_LENGTH, Broadcaster
from webapp.live.stream import events, message


class Source:
    """A run as a list of things; the live number is how many there are."""

    def __init__(self) -> None:
        self.things: dict[str, list[str]] = {"r": ["a", "b"]}
        self.asked_numbers = 0
        self.asked_deltas: list[tuple[str, int]] = []
        self.broken = False

    async def numbers(self, run_ids: Collection[str]) -> dict[str, int]:
        self.asked_numbers += 1
        if self.broken:
            raise ConnectionError("the database is away")
        return {run_id: len(self.things[run_id]) for run_id in run_ids if run_id in self.things}

    async def delta(self, run_id: str, since: int) -> dict[str, Any] | None:
        self.asked_deltas.append((run_id, since))
        things = self.things.get(run_id)
        return None if things is None else {"cursor": len(things), "things": things[since:]}


def run(test: Callable[[Source, Broadcaster], Awaitable[None]]) -> Source:
    async def inside() -> Source:
        source = Source()
        hub = Broadcaster(numbers=source.numbers, delta=source.delta, interval=0.001)
        await test(source, hub)
        if hub.task is not None:
            hub.task.cancel()
        return source

    return asyncio.run(inside())


def test_streams_at_one_place_share_one_reading() -> None:
    async def test(source: Source, hub: Broadcaster) -> None:
        streams = [hub.subscribe("r", 1) for _ in range(5)]
        late = hub.subscribe("r", 0)
        await hub.tick()
        assert [s.queue.get_nowait()["things"] for s in streams] == [["b"]] * 5  # type: ignore[index]
        assert late.queue.get_nowait() == {"cursor": 2, "things": ["a", "b"]}
        source.things["r"].append("c")
        await hub.tick()
        assert {tuple(s.queue.get_nowait()["things"]) for s in [*streams, late]} == {("c",)}  # type: ignore[index]
        await hub.tick()
        assert all(s.queue.empty() for s in streams)

    source = run(test)
    assert sorted(source.asked_deltas) == [("r", 0), ("r", 1), ("r", 2)]


def test_nobody_watching_costs_nothing() -> None:
    async def test(source: Source, hub: Broadcaster) -> None:
        stream = hub.subscribe("r", 2)
        while source.asked_numbers < 3:
            await asyncio.sleep(0)
        hub.unsubscribe(stream)
        assert hub.task is not None
        hub.wake.set()
        await hub.task
        asked = source.asked_numbers
        assert not hub.subscribers
        again = hub.subscribe("r", 0)
        assert (await again.queue.get())["things"] == ["a", "b"]  # type: ignore[index]
        assert source.asked_numbers > asked

    run(test)


def test_a_stream_that_does_not_read_is_closed_and_catches_up_later() -> None:
    async def test(source: Source, hub: Broadcaster) -> None:
        slow, quick = hub.subscribe("r", 2), hub.subscribe("r", 2)
        for number in range(QUEUE_LENGTH + 1):
            source.things["r"].append(str(number))
            await hub.tick()
            quick.queue.get_nowait()
        last: Any = ...
        while not slow.queue.empty():
            last = slow.queue.get_nowait()
        assert last is None
        assert slow not in hub.subscribers["r"]
        assert quick in hub.subscribers["r"]

    run(test)


def test_a_deleted_run_ends_its_streams() -> None:
    async def test(source: Source, hub: Broadcaster) -> None:
        stream = hub.subscribe("r", 2)
        del source.things["r"]
        await hub.tick()
        assert stream.queue.get_nowait() is None
        assert not hub.subscribers

    run(test)


def test_a_database_that_is_away_only_delays(caplog: pytest.LogCaptureFixture) -> None:
    async def test(source: Source, hub: Broadcaster) -> None:
        source.broken = True
        stream = hub.subscribe("r", 0)
        while not caplog.records:
            await asyncio.sleep(0)
        source.broken = False
        assert (await asyncio.wait_for(stream.queue.get(), 5))["cursor"] == 2  # type: ignore[index]

    run(test)


def test_a_cursor_from_the_future_starts_over() -> None:
    async def test(source: Source, hub: Broadcaster) -> None:
        stream = hub.subscribe("r", 99)
        await hub.tick()
        assert stream.queue.get_nowait() == {"cursor": 2, "things": ["a", "b"]}

    run(test)


def test_a_stream_speaks_sse_and_leaves_when_its_reader_does() -> None:
    async def test(source: Source, hub: Broadcaster) -> None:
        stream = events(hub, "r", 1, keep_alive=0.001)
        assert await anext(stream) == b"retry: 1000\n\n"
        found = [await anext(stream)]
        while not found[-1].startswith(b"id:"):
            found.append(await anext(stream))
        kind, data = found[-1].decode().split("\n")[1:3]
        assert found[-1].startswith(b"id: 2\n")
        assert kind == "event: delta"
        assert json.loads(data.removeprefix("data: ")) == {"cursor": 2, "things": ["b"]}
        assert await anext(stream) == b": still here\n\n"
        await stream.aclose()  # type: ignore[attr-defined]
        assert not hub.subscribers

    run(test)


def test_a_stream_ends_after_its_longest_time_so_that_rights_are_checked_again() -> None:
    async def test(source: Source, hub: Broadcaster) -> None:
        assert [part async for part in events(hub, "r", 2, longest=0.0)] == [b"retry: 1000\n\n"]
        assert not hub.subscribers

    run(test)


def test_a_message_is_one_data_line_and_refuses_nan() -> None:
    assert message({"cursor": 3, "text": "two\nlines"}).count(b"\n") == 4
    with pytest.raises(ValueError, match="not JSON compliant"):
        message({"cursor": 3, "value": float("nan")})
