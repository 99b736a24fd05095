"""Writes recorded.json: what TRL and verl say about a slice of the cases, for suites where they are not installed.

build/anchor/bin/python -m tests.anchor.record
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import torch

from tests.anchor.by_trl import by_trl
from tests.anchor.by_verl import by_verl
from tests.anchor.cases import recorded_cases

FILE = Path(__file__).with_name("recorded.json")


def main() -> None:
    """Runs the recorded cases in fp64; gradients as they are."""
    rows = {}
    for case in recorded_cases():
        loss, gradient = (by_trl if case.name.startswith("trl") else by_verl)(case, torch.float64)
        rows[case.name] = {"loss": loss, "gradient": [float(f"{x:.12g}") for x in gradient.flatten().tolist()]}
    made = {"versions": {name: version(name) for name in ("trl", "verl", "torch")}, "cases": rows}
    FILE.write_text(json.dumps(made, indent=0, sort_keys=True) + "\n")
    print(f"{len(rows)} cases, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
