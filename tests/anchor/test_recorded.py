"""Our losses against numbers that TRL and verl have given (record.py), where the two are not installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.anchor.cases import Case, recorded_cases
from tests.anchor.ours import ours

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())["cases"]
VERL_GUARD = 3e-8
"""verl adds 1e-8 to token counts."""


def test_every_recorded_case_is_there() -> None:
    assert sorted(RECORDED) == sorted(case.name for case in recorded_cases())


@pytest.mark.parametrize("case", recorded_cases(), ids=lambda c: c.name)
def test_loss_and_gradient_are_as_recorded(case: Case) -> None:
    guarded = case.theirs.get("mode") == "seq-mean-token-mean"
    loss, gradient = ours(case, torch.float64)
    expected = RECORDED[case.name]
    near = {"abs": VERL_GUARD if guarded else 1e-9, "rel": 1e-8 if guarded else 1e-11}
    assert loss == pytest.approx(expected["loss"], **near)
    assert gradient.flatten().tolist() == pytest.approx(expected["gradient"], **near)
