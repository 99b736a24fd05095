"""Counter-based randomness: stable keys, and tensor streams equal to the plain-Python reference."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.core import rng


def test_keys_are_stable_across_machines_and_releases():
    assert rng.key(7, "policy", "train", 3) == 5457360075247708699
    assert rng.key() == 13020603013274838756


def test_key_separates_types_boundaries_and_order():
    keys = {rng.key("ab", "c"), rng.key("a", "bc"), rng.key("c", "ab"), rng.key(1), rng.key("1"), rng.key(-1)}
    assert len(keys) == 6


@pytest.mark.parametrize("part", [True, 1.0, None, b"x"])
def test_key_refuses_parts_whose_text_form_is_ambiguous(part):
    with pytest.raises(TypeError, match="str and int"):
        rng.key("seed", part)


def test_first_numbers_of_the_zero_key_are_splitmix64s_published_outputs():
    # Outputs of splitmix64 with state 0: 0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F.
    expected = [(z >> 11) * 2.0**-53 for z in (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F)]
    assert [rng.uniform(0, i) for i in range(3)] == expected


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8), st.integers(0, 2**40))
def test_tensor_uniforms_equal_the_python_reference_bit_for_bit(keys, position):
    got = rng.uniforms(torch.tensor([rng.signed(k) for k in keys]), position)
    assert got.dtype == torch.float64
    assert got.tolist() == [rng.uniform(k, position) for k in keys]


def test_keys_and_positions_broadcast_to_a_table():
    keys = torch.tensor([rng.signed(rng.key(i)) for i in range(5)])
    table = rng.uniforms(keys[:, None], torch.arange(4)[None])
    assert table.shape == (5, 4)
    assert table[3, 2].item() == rng.uniform(rng.key(3), 2)


def test_uniforms_are_uniform_and_neighbouring_streams_are_uncorrelated():
    keys = torch.tensor([rng.signed(rng.key("stream", i)) for i in range(200)])
    u = rng.uniforms(keys[:, None], torch.arange(500)[None])
    assert u.min() >= 0.0
    assert u.max() < 1.0
    counts = torch.histc(u, 20, 0, 1)
    chi2 = ((counts - 5000) ** 2 / 5000).sum().item()
    assert chi2 < 43.8  # 99.9 % point of chi-square with 19 degrees of freedom
    centred = u - 0.5
    for a, b in ((centred[:-1], centred[1:]), (centred[:, :-1], centred[:, 1:])):
        assert abs((a * b).mean().item() * 12) < 4 / (a.numel() ** 0.5)


def test_python_rng_repeats_for_equal_parts_only():
    assert rng.python_rng("a", 1).random() == rng.python_rng("a", 1).random()
    assert rng.python_rng("a", 1).random() != rng.python_rng("a", 2).random()


def test_module_does_not_import_torch():
    code = "import sys, trainer.core.rng as r; r.key(1); r.python_rng(2).random(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
