"""A checker that does what the answer says: hang, sleep, crash, fill the memory, raise, or say True."""

from __future__ import annotations

import os
import time
from typing import Any

from trainer.rewards.worker import limit_memory, serve


def reply(request: Any) -> Any:
    """By the text after the last blank."""
    answer = request["answer"] if isinstance(request, dict) else request
    if answer == "hang":
        while True:
            pass
    if answer == "sleep":
        time.sleep(3600)
    if answer == "crash":
        os.abort()
    if answer == "fill":
        return len(bytearray(1 << 40))
    return 1.0


if __name__ == "__main__":
    limit_memory()
    serve(reply)
