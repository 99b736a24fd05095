"""The process in which math-verify runs: [gold, answer] → true, false or null. Its own time limit is built on signals in
the main thread, and an answer can keep it busy for ever.
"""

from __future__ import annotations

import logging
from typing import Any

from trainer.rewards.worker import limit_memory, serve


def main() -> None:
    """Until the other side closes."""
    limit_memory()
    logging.disable(logging.CRITICAL)
    from math_verify import parse, verify

    def reply(request: Any) -> bool | None:
        gold, answer = request
        try:
            left = parse(f"${gold}$", parsing_timeout=None)
            right = parse(f"${answer}$", parsing_timeout=None)
            return bool(verify(left, right, timeout_seconds=None)) if left and right else None
        except Exception:
            return None

    # The first symbolic question builds sympy's tables, which is nobody's time.
    reply(["x+1", "1+x"])
    serve(reply)


if __name__ == "__main__":
    main()
