"""Linear layers by the faster library equal torch's own, forward and backward."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

from trainer.policy import products


@pytest.mark.parametrize(("rows", "width", "out"), [(1, 8, 8), (300, 128, 96), (700, 64, 512), (2000, 512, 40)])
@pytest.mark.parametrize("bias", [False, True])
def test_values_and_gradients_are_those_of_torch(rows: int, width: int, out: int, bias: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    shapes = [(rows, width), (out, width), *([(out,)] if bias else [])]
    ours = [torch.randn(shape, generator=draw).requires_grad_() for shape in shapes]
    exact = [t.detach().double().requires_grad_() for t in ours]
    weigh = torch.randn(rows, out, generator=draw)
    found, expected = products.linear(*ours), F.linear(*exact)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)
    (found * weigh).sum().backward()
    (expected * weigh).sum().backward()
    for a, b in zip(ours, exact, strict=True):
        assert a.grad is not None
        assert b.grad is not None
        torch.testing.assert_close(a.grad.double(), b.grad, rtol=1e-5, atol=1e-3)


def test_only_the_gradients_that_are_wanted_are_computed() -> None:
    x, weight = torch.randn(700, 64), torch.randn(512, 64, requires_grad=True)
    products.linear(x, weight).sum().backward()
    assert x.grad is None
    assert weight.grad is not None


def test_row_counts_are_brought_to_few_values_at_little_cost() -> None:
    for low in (64, 1024, 8192):
        counts = {products.rounded(n) for n in range(low, 2 * low)}
        assert len(counts) <= 17
    assert all(n <= products.rounded(n) <= n * 17 / 16 for n in itertools.chain(range(1, 3000), (12345, 99999)))
