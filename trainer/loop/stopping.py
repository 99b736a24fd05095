"""When to stop: SIGTERM or SIGINT, or the end of the pipe whose other end the supervisor holds."""

from __future__ import annotations

import os
import signal
import threading


class StopFlag:
    """True once someone asked. A second SIGINT ends the process at once, for an impatient person at a terminal."""

    def __init__(self, parent_fd: int | None = None) -> None:
        self._event = threading.Event()
        self.reason = ""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        if parent_fd is not None:
            threading.Thread(target=self._watch, args=(parent_fd,), daemon=True).start()

    def __call__(self) -> bool:
        """Whether to stop at the next safe point."""
        return self._event.is_set()

    def _on_signal(self, number: int, frame: object) -> None:
        if self._event.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.reason = signal.Signals(number).name
        self._event.set()

    def _watch(self, fd: int) -> None:
        while os.read(fd, 1):
            pass
        self.reason = "the supervisor went away"
        self._event.set()
