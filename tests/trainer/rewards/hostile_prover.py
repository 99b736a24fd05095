"""A prover that hangs on answers that begin with 0 or 1, crashes on those with 2 or 3, and takes the rest for right where
they begin with 4 to 6."""

from __future__ import annotations

import os
from typing import Any

from trainer.rewards.worker import serve


def reply(request: Any) -> bool:
    """By the answer's first character."""
    _gold, answer = request
    while answer[0] in "01":
        pass
    if answer[0] in "23":
        os.abort()
    return answer[0] in "456"


if __name__ == "__main__":
    serve(reply)
