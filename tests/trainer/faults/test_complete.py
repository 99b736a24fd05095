"""Thirty faults that users of other trainers report: each has a test ``test_NN_<what they see>`` somewhere in this suite,
here where it is one of a part, beside the part's other tests where it needs them."""

from __future__ import annotations

import re
from pathlib import Path


def test_every_reported_fault_has_a_test_by_its_number() -> None:
    suite = Path(__file__).resolve().parents[1]
    found = {
        int(n) for path in suite.rglob("test_*.py") for n in re.findall(r"^def test_(\d\d)_", path.read_text(), re.M)
    }
    assert found == set(range(1, 31))
