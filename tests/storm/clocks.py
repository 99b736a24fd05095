"""Clocks that are off: a program whose wall clock is as far from the machine's as a file says at the moment.

    python -m tests.storm.clocks FILE manage.py worker
    python -m tests.storm.clocks FILE -m trainer run config.json

What a service or a trainer reads for the time of day is `time.time`, Django's `timezone.now` and, for the time in an
event, the writer's own `datetime`. Monotonic time goes on, as it does when a machine's clock is set.
"""

from __future__ import annotations

import mmap
import runpy
import struct
import sys
import time
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

SECONDS = struct.Struct("d")


class Clocks:
    """One file for each of the names, in a new folder; `set` says how many seconds a clock is ahead."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        folder.mkdir()
        self.files = {name: folder / name for name in names}
        for name in names:
            self.files[name].write_bytes(SECONDS.pack(0.0))

    def set(self, name: str, seconds: float) -> None:
        with self.files[name].open("r+b") as file:
            file.write(SECONDS.pack(seconds))

    def command(self, name: str, command: tuple[str, ...]) -> tuple[str, ...]:
        """A Python command line, run by this clock."""
        python, *rest = command
        return (python, "-m", "tests.storm.clocks", str(self.files[name]), *rest)


def live_by(path: Path) -> None:
    """From here on this process has the file's clock."""
    with path.open("rb") as file:
        off = mmap.mmap(file.fileno(), SECONDS.size, access=mmap.ACCESS_READ)
    real = time.time

    def now() -> float:
        return real() + float(SECONDS.unpack(off)[0])

    class Off(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.fromtimestamp(now(), tz)

    time.time = now
    time.time_ns = lambda: int(now() * 1e9)
    if "trainer" in sys.argv[2:4]:
        from trainer.loop import emitter

        emitter.datetime = Off  # type: ignore[misc]
    else:
        from django.utils import timezone

        timezone.now = lambda: Off.now(UTC)


def main() -> None:
    live_by(Path(sys.argv[1]))
    if sys.argv[2] == "-m":
        sys.argv = sys.argv[3:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = sys.argv[2:]
        runpy.run_path(sys.argv[0], run_name="__main__")


HOUR, YEAR = timedelta(hours=1).total_seconds(), timedelta(days=365).total_seconds()
JUMPS = (HOUR, -HOUR, 10 * YEAR, -10 * YEAR)


if __name__ == "__main__":
    main()
