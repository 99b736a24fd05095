"""``hardware.processes``: the command starts itself that many times, and ends as the processes end.

The processes find each other by torchrun's variables, so that torchrun, which several hosts need, starts the same command
too. torchrun itself knows no exit code but 0 and 1 and waits half a minute for processes that wait for a dead one.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

GRACE = 20.0
"""Seconds from the end of the first process that failed until the others are killed."""


def processes_of(document: Any) -> int:
    """How many processes a configuration wants, valid or not as it may be; 1 inside one of several."""
    section = document.get("hardware") if isinstance(document, dict) else None
    count = section.get("processes", 1) if isinstance(section, dict) else 1
    return count if isinstance(count, int) and "RANK" not in os.environ else 1


def run_processes(count: int, argv: Sequence[str], *, parent_fd: int | None) -> int:
    """Runs ``python -m trainer ARGV`` in ``count`` processes and returns their exit code: that of the first one that failed.

    Signals are passed on, and the end of the parent pipe. Processes whose command has died stop by themselves.
    """
    read_end, write_end = os.pipe()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "trainer", *argv, "--parent-fd", str(read_end)]
    children = []
    for rank in range(count):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        defaults = {"GLOO_SOCKET_IFNAME": "lo"} if os.path.exists("/sys/class/net/lo") else {}
        environment = {**defaults, **os.environ, **own, **meet}
        children.append(subprocess.Popen(command, env=environment, pass_fds=(read_end,)))
    os.close(read_end)

    def stop(*_: object) -> None:
        for child in children:
            if child.poll() is None:
                child.terminate()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    if parent_fd is not None:
        threading.Thread(target=_watch, args=(parent_fd, stop), daemon=True).start()
    try:
        return _wait(children)
    finally:
        os.close(write_end)


def _watch(fd: int, stop: Any) -> None:
    while os.read(fd, 1):
        pass
    stop()


def _wait(children: list[subprocess.Popen[bytes]]) -> int:
    """Waits for all; the exit code of the first one that did not end with 0, a signal's as a shell tells it."""
    failed, since = 0, 0.0
    left = list(children)
    while left:
        for child in list(left):
            code = child.poll()
            if code is None:
                continue
            left.remove(child)
            if code and not failed:
                failed, since = code, time.monotonic()
        if failed and time.monotonic() - since > GRACE:
            for child in left:
                child.kill()
        time.sleep(0.05)
    return 128 - failed if failed < 0 else failed
