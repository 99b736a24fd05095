"""Modular chain, parity and lookup."""

from __future__ import annotations

import random

import pytest

from trainer.core.errors import ConfigError
from trainer.core.types import Message, Prompt
from trainer.data.task import problems
from trainer.data.tasks import make_task
from trainer.data.tasks.lookup import Lookup, LookupParams
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


def test_a_worked_chain_gives_the_remainder_after_each_sign() -> None:
    task = ModChain(ModChainParams(worked=True))
    prompt = Prompt(
        "0" * 16, (Message("user", "?"),), "4", "mod_chain", {"terms": [[1, 7], [1, 12], [-1, 5]], "modulus": 10}
    )
    assert task.oracle(prompt, random.Random(0)) == "9 4"
    for text, reward, answer in (
        ("9 4", 1.0, "4"), ("4", 1.0, "4"), ("1 2 3 4\n", 1.0, "4"), ("9 5", 0.0, "5"), ("9  4", 0.0, None),
        ("9 04", 0.0, None), ("9,4", 0.0, None), ("", 0.0, None), (" ".join("4" * 65), 0.0, None),
    ):  # fmt: skip
        verdict = task.score(text, prompt)
        assert (verdict.reward, verdict.answer) == (reward, answer)
        assert verdict.canonical == (text.strip() if answer else None)
    plain = ModChain(ModChainParams())
    assert plain.generate(random.Random(1)).uid != task.generate(random.Random(1)).uid


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


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_lookup_answers_are_found_by_following_the_entries(hops: int) -> None:
    task = Lookup(LookupParams(hops=hops, shortest=80, longest=300))
    rng = random.Random(0)
    for _ in range(50):
        prompt = task.generate(rng)
        context, _, key = prompt.text.rstrip(":").partition("?")
        table = dict(entry.split("=") for entry in context.split(" "))
        word = key
        for _ in range(hops):
            word = table[word]
        assert word == prompt.answer
        ends = set(table.values()) - set(table)
        assert prompt.meta["chance"] == 1 / len(ends)
        assert prompt.answer in ends
        assert 80 - task.params.chain < len(prompt.text) == prompt.meta["length"] <= 300


def test_lookup_contexts_of_held_out_problems_are_longer_than_those_of_training() -> None:
    task = make_task("lookup", {"shortest": 64, "longest": 128, "longest_held_out": 512})
    longest = {s: max(p.meta["length"] for p in problems(task, s, 40, seed=0)) for s in ("train", "validation", "test")}
    assert longest["train"] <= 128
    assert min(longest["validation"], longest["test"]) > 400


def test_lookup_takes_one_word_only() -> None:
    task = make_task("lookup")
    prompt = Prompt("0" * 16, (Message("user", "ab=cd ef=gh?ab:"),), "cd", "lookup", {})
    found = [(text, v.reward, v.answer) for text in ("cd", "gh", " cd\n", "c", "cde", "c1", "cd gh", "CD")
             for v in [task.score(text, prompt)]]  # fmt: skip
    assert found[:3] == [("cd", 1.0, "cd"), ("gh", 0.0, "gh"), (" cd\n", 1.0, "cd")]
    assert all(answer is None and not reward for _, reward, answer in found[3:])


def test_lookup_refuses_contexts_that_cannot_be_made() -> None:
    with pytest.raises(ConfigError, match=r"longest 64 must be at least shortest 70"):
        make_task("lookup", {"shortest": 70})
    with pytest.raises(ConfigError, match=r"no room for two chains, which take 28"):
        make_task("lookup", {"hops": 2, "shortest": 24})
    with pytest.raises(ConfigError, match=r"too few words of that length for"):
        make_task("lookup", {"longest": 4000})
