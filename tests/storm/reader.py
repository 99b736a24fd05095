"""A page that somebody has open: it follows a run's live stream as a browser does, over every lost connection, and keeps
what it was told, so that it can be compared with what is stored.
"""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any

AGAIN_SECONDS = 1.0
# The server says every 15 seconds that it is still there.
SILENCE_SECONDS = 40.0


class Page:
    """What a page was told, message by message. `faults` are things told twice."""

    def __init__(self) -> None:
        self.cursor = 0
        self.state = ""
        self.whole = True
        self.lines: Counter[str] = Counter()
        self.points: dict[str, dict[int, float | None]] = {}
        self.pictures: set[tuple[str, str, int]] = set()
        self.evaluations: dict[int, int] = {}
        self.faults: list[str] = []

    def take(self, delta: dict[str, Any]) -> None:
        """One message, as the page takes it: after a rewind everything later is forgotten."""
        if delta["cursor"] <= self.cursor:
            self.faults.append(f"live number {delta['cursor']} follows {self.cursor}")
        self.cursor, self.state = delta["cursor"], delta["run"]["state"]
        # Too much was new to be sent: the page then asks for its series, which no reader here does.
        self.whole &= "reload" not in delta
        for name in ("logs", "marks", "phases"):
            self.lines.update(json.dumps(line, sort_keys=True) for line in delta.get(name, ()))
        if "rewind" in delta:
            # A run that starts again rewinds to before iteration 0, which is told as 0.
            self._forget(delta["rewind"] if delta["rewind"] > 0 else -1)
        for one in delta.get("series", ()):
            known = self.points.setdefault(one["key"], {})
            for iteration, value in zip(one["iteration"], one["y"], strict=True):
                if iteration in known:
                    self.faults.append(f"{one['key']} of iteration {iteration} was told twice")
                known[iteration] = value
        for drawn in delta.get("drawn", ()):
            key = (drawn["kind"], drawn["key"], drawn["iteration"])
            if key in self.pictures:
                self.faults.append(f"{key} was told twice")
            self.pictures.add(key)
        for one in delta.get("evaluations", ()):
            if one["id"] in self.evaluations:
                self.faults.append(f"evaluation {one['id']} was told twice")
            self.evaluations[one["id"]] = one["iteration"]

    def _forget(self, iteration: int) -> None:
        for known in self.points.values():
            for later in [at for at in known if at > iteration]:
                del known[later]
        self.pictures = {one for one in self.pictures if one[2] <= iteration}
        self.evaluations = {pk: at for pk, at in self.evaluations.items() if at <= iteration}

    def missed(self, stored: dict[str, Any]) -> list[str]:
        """Where what was told is not what is stored (`tests.storm.hand.shown`)."""
        told = [*self.faults]
        if (self.cursor, self.state) != (stored["cursor"], stored["state"]):
            told.append(f"it ends {self.state} at {self.cursor}, stored is {stored['state']} at {stored['cursor']}")
        for line, times in Counter(stored["lines"]).items():
            if self.lines[line] != times:
                told.append(f"told {self.lines[line]} times, expected {times}: {line[:160]}")
        hidden = Counter(stored["hidden_lines"])
        for line, times in (self.lines - Counter(stored["lines"])).items():
            if times > hidden[line]:
                told.append(f"told {times} times, stored {hidden[line]} times and hidden: {line[:160]}")
        points = {key: {str(at): y for at, y in known.items()} for key, known in self.points.items() if known}
        if self.whole and points != stored["points"]:
            keys = [key for key in {**points, **stored["points"]} if points.get(key) != stored["points"].get(key)]
            told.append(f"points of {len(keys)} series differ from the stored ones: {sorted(keys)[:5]}")
        if sorted(map(list, self.pictures)) != sorted(stored["pictures"]):
            told.append(f"pictures: {len(self.pictures)} told, {len(stored['pictures'])} stored, or others")
        if sorted(self.evaluations) != stored["evaluations"]:
            told.append(f"evaluations told {sorted(self.evaluations)}, stored {stored['evaluations']}")
        return [f"the live stream: {one}" for one in told]


class Reader:
    """Keeps a page open, in a thread, from the moment its run is made until `close`. `connections` counts its streams."""

    def __init__(self, address: str, cookie: str) -> None:
        self.address, self.cookie = address, cookie
        self.page = Page()
        self.connections = 0
        self.closed = threading.Event()
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.closed.set()

    def _follow(self) -> None:
        while not self.closed.is_set():
            # The server is gone, or was in the middle of a message.
            with contextlib.suppress(OSError, HTTPException):
                for delta in self._deltas():
                    self.page.take(delta)
                    if self.closed.is_set():
                        return
            self.closed.wait(AGAIN_SECONDS)

    def _deltas(self) -> Iterator[dict[str, Any]]:
        """Until the connection ends. Raises OSError and HTTPException."""
        headers = {"Cookie": self.cookie}
        if self.page.cursor:
            headers["Last-Event-ID"] = str(self.page.cursor)
        request = urllib.request.Request(f"{self.address}?cursor=0", headers=headers)
        with urllib.request.urlopen(request, timeout=SILENCE_SECONDS) as answer:
            if answer.headers.get_content_type() != "text/event-stream":
                return  # asked to sign in, for instance
            self.connections += 1
            for line in answer:
                # A message that was cut off has no end of line, and is told again.
                if line.startswith(b"data: ") and line.endswith(b"\n"):
                    yield json.loads(line.removeprefix(b"data: "))
