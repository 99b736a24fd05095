"""The trainer itself, made to wait where a test wants it: the fate of a run then depends on no machine's speed.

    python -m tests.installed.held run config.json …        as `python -m trainer run config.json …`

With the file `hold` in the run's folder, which names an iteration, it goes no further once it has said that it has
reached that iteration: until the file is gone, or it is asked to stop.
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-m", "tests.installed.held")
FILE = "hold"


def hold(run_folder: Path, *, at: int) -> None:
    """From iteration `at` on the run's trainer waits."""
    run_folder.mkdir(parents=True, exist_ok=True)
    (run_folder / FILE).write_text(str(at))


def release(run_folder: Path) -> None:
    (run_folder / FILE).unlink(missing_ok=True)


def main() -> None:
    from trainer.contract import events as ev
    from trainer.loop import stopping
    from trainer.loop.emitter import EventWriter

    asked: list[Any] = []

    class Noted(stopping.StopFlag):
        def __init__(self, parent_fd: int | None = None) -> None:
            super().__init__(parent_fd)
            asked.append(self)

    write = EventWriter.__call__

    def write_and_wait(self: EventWriter, event: Any) -> None:
        write(self, event)
        if isinstance(event, ev.Progress):
            while _waits(event.iteration) and not any(flag() for flag in asked):
                time.sleep(0.01)

    stopping.StopFlag = Noted  # type: ignore[misc]
    EventWriter.__call__ = write_and_wait  # type: ignore[method-assign]
    sys.argv[0] = "trainer"
    runpy.run_module("trainer", run_name="__main__", alter_sys=True)


def _waits(iteration: int) -> bool:
    # The trainer's working folder is its run's.
    try:
        return iteration >= int(Path(FILE).read_text())
    except (OSError, ValueError):
        return False


if __name__ == "__main__":
    main()
