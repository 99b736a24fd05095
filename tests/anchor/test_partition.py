"""Any split of a step's rows into micro-batches has the same loss and gradient, for every recorded case."""

from __future__ import annotations

import pytest
import torch

from tests.anchor.cases import Case, recorded_cases
from tests.anchor.ours import ours

SPLITS = (((0, 1, 2), (3, 4, 5)), ((5, 0), (2,), (4, 3, 1)), ((0,), (1,), (2,), (3,), (4,), (5,)))


@pytest.mark.parametrize("case", recorded_cases(), ids=lambda c: c.name)
def test_the_split_does_not_matter(case: Case) -> None:
    whole, gradient = ours(case, torch.float64)
    for split in SPLITS:
        loss, parts = ours(case, torch.float64, split=split)
        assert loss == pytest.approx(whole, abs=1e-12)
        assert float((parts - gradient).abs().max()) < 1e-12
