"""Loaded weights compute the same bits as the weights that were saved, gradients included."""

from __future__ import annotations

from pathlib import Path

import torch

from trainer.policy.load import load_policy, save_policy
from trainer.testing.tiny import tiny_policy


def test_loaded_parameters_lie_as_fresh_ones_do(tmp_path: Path) -> None:
    policy = tiny_policy()
    save_policy(policy, tmp_path / "p")
    loaded = load_policy(tmp_path / "p")
    assert all(p.data_ptr() % 64 == 0 for p in loaded.model.parameters())
    for (name, a), (_, b) in zip(policy.model.named_parameters(), loaded.model.named_parameters(), strict=True):
        assert torch.equal(a, b), name
