"""Weights hash: equal iff the weights are equal."""

import torch
from torch import nn

from trainer.policy.fingerprint import weights_hash
from trainer.testing.tiny import tiny_policy


def test_dictionary_order_does_not_matter_but_names_do():
    a, b = torch.ones(2), torch.zeros(2)
    assert weights_hash({"a": a, "b": b}) == weights_hash({"b": b, "a": a})
    assert weights_hash({"a": a, "b": b}) != weights_hash({"b": a, "a": b})


def test_dtype_shape_and_every_byte_matter():
    base = torch.zeros(4)
    hashes = {
        weights_hash({"w": t})
        for t in (base, base.half(), base.view(2, 2), torch.tensor([0.0, 0, 0, 1e-45]), torch.zeros(5))
    }
    assert len(hashes) == 5


def test_memory_layout_does_not_matter():
    w = torch.arange(6.0).view(2, 3)
    assert weights_hash({"w": w}) == weights_hash({"w": w.t().contiguous().t()})


def test_tied_weights_count_once():
    model = nn.ModuleDict({"a": nn.Linear(3, 3, bias=False), "b": nn.Linear(3, 3, bias=False)})
    model["b"].weight = model["a"].weight
    assert weights_hash(model) == weights_hash({"a.weight": model["a"].weight})


def test_equal_weights_under_two_names_are_not_taken_for_tied():
    assert weights_hash({"a": torch.zeros(2), "b": torch.zeros(2)}) != weights_hash({"a": torch.zeros(2)})


def test_one_changed_weight_changes_the_hash():
    model = tiny_policy().model
    before = weights_hash(model)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[3, 4] += 1e-3
    assert weights_hash(model) != before
