"""Modular chain and parity."""

from __future__ import annotations

import random

import pytest

from trainer.core.types import Message, Prompt
from trainer.data.tasks.mod_chain import ModChain, ModChainParams
from trainer.data.tasks.parity import Parity, ParityParams


def chain(answer: str, modulus: int) -> Prompt:
    return Prompt("0" * 16, (Message("user", "?"),), answer, "mod_chain", {"modulus": modulus})


@pytest.mark.parametrize(
    ("completion", "reward", "answer"),
    [
        ("4", 1.0, "4"),
        (" 4\n", 1.0, "4"),
        ("7", 0.0, "7"),
        ("10", 0.0, None),
        ("04", 0.0, None),
        ("-6", 0.0, None),
        ("7+12-5", 0.0, None),
        ("4.", 0.0, None),
        ("٤", 0.0, None),
        ("", 0.0, None),
        ("9" * 5000, 0.0, None),
    ],
)
def test_mod_chain_takes_a_plain_residue_only(completion: str, reward: float, answer: str | None) -> None:
    verdict = ModChain().score(completion, chain("4", 10))
    assert (verdict.reward, verdict.answer, verdict.canonical) == (reward, answer, answer)


def test_mod_chain_answer_is_the_value_of_its_text() -> None:
    task = ModChain(ModChainParams(terms=4, largest=99, modulus=7))
    rng = random.Random(0)
    for _ in range(200):
        prompt = task.generate(rng)
        chain_text, _, modulus = prompt.text.rstrip(":").partition("%")
        assert modulus == "7"
        signed = chain_text.replace("-", "+-").split("+")
        assert prompt.answer == str(sum(map(int, signed)) % 7)
        assert len(signed) == 4


def test_mod_chain_chance_is_one_over_the_modulus() -> None:
    assert ModChain(ModChainParams(modulus=8)).generate(random.Random(0)).meta["chance"] == 0.125


@pytest.mark.parametrize(
    ("completion", "reward", "answer"),
    [("1", 1.0, "1"), ("0", 0.0, "0"), ("1\n", 1.0, "1"), ("11", 0.0, None), ("", 0.0, None), ("odd", 0.0, None)],
)
def test_parity_takes_one_digit(completion: str, reward: float, answer: str | None) -> None:
    prompt = Prompt("0" * 16, (Message("user", "10110:"),), "1", "parity", {"bits": "10110"})
    verdict = Parity().score(completion, prompt)
    assert (verdict.reward, verdict.answer, verdict.canonical) == (reward, answer, answer)


def test_parity_answer_is_one_iff_the_ones_are_odd() -> None:
    task = Parity(ParityParams(bits=5))
    rng = random.Random(0)
    for _ in range(100):
        prompt = task.generate(rng)
        assert len(prompt.text) == 6
        assert prompt.answer == str(sum(map(int, prompt.text[:5])) & 1)
        assert prompt.meta["chance"] == 0.5
