"""Accuracy by length of the prompt."""

from __future__ import annotations

from collections.abc import Sequence

BUCKETS = {"64": 64, "128": 128, "256": 256, "512": 512, "1k": 1024, "2k": 2048, "4k": 4096, "8k": 8192}
"""Name of a bucket → most tokens of a prompt in it (more than the bucket before has)."""
LONGER = "longer"


def accuracy_by_length(counts: Sequence[tuple[int, int, int]]) -> dict[str, float]:
    """``eval/accuracy@<bucket>`` from (tokens of the prompt, n, c) of each problem: mean c/n of the bucket's problems, each
    with weight 1. Buckets without a problem are left out."""
    found: dict[str, list[float]] = {}
    for tokens, n, c in counts:
        if n:
            name = next((name for name, most in BUCKETS.items() if tokens <= most), LONGER)
            found.setdefault(name, []).append(c / n)
    return {
        f"eval/accuracy@{name}": sum(found[name]) / len(found[name]) for name in (*BUCKETS, LONGER) if name in found
    }
