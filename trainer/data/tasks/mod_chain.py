"""Modular chain: `7+12-5%10:` → `4`, or worked `9 4`. Chance policy: uniformly drawn residues, so 1/modulus exactly."""

from __future__ import annotations

import random
import re

from pydantic import Field

from trainer.core.types import Prompt, Verdict
from trainer.data.task import WRONG, Task, TaskParams

MOST_STEPS = 64
_RESIDUE = re.compile(r"0|[1-9][0-9]{0,3}")


class ModChainParams(TaskParams):
    """Settings of the modular chain."""

    terms: int = Field(default=3, ge=2, le=8, title="Terms", description="How many numbers are added or subtracted.")
    largest: int = Field(
        default=19, ge=1, le=999, title="Largest number", description="Numbers are drawn from 0 up to here."
    )
    modulus: int = Field(
        default=10, ge=2, le=1000, title="Modulus", description="The answer is the remainder by this number."
    )
    worked: bool = Field(
        default=False,
        title="Worked",
        description="The answer is the last of several remainders, and solutions give one after each step.",
    )


class ModChain(Task):
    """A sum with plus and minus signs, reduced by a modulus; the answer class is the residue, and the canonical form what
    is written: the residue, or the residues on the way to it."""

    name = "mod_chain"
    title = "Modular chain"
    description = "Add and subtract a few numbers and give the remainder by a modulus."
    checker_version = "1"
    Params = ModChainParams

    def __init__(self, params: TaskParams | None = None) -> None:
        super().__init__(params)
        assert isinstance(self._params, ModChainParams)
        self.params = self._params

    @property
    def max_prompt_chars(self) -> int:
        p = self.params
        return p.terms * (len(str(p.largest)) + 1) + len(str(p.modulus)) + 1

    @property
    def max_completion_chars(self) -> int:
        p = self.params
        return (p.terms - 1) * (len(str(p.modulus - 1)) + 1) - 1 if p.worked else len(str(p.modulus - 1))

    def generate(self, rng: random.Random) -> Prompt:
        """Numbers and signs uniform and independent; the first number is added."""
        p = self.params
        numbers = [rng.randint(0, p.largest) for _ in range(p.terms)]
        signs = [1] + [rng.choice((1, -1)) for _ in range(p.terms - 1)]
        return self._prompt([[s, n] for s, n in zip(signs, numbers, strict=True)], p.modulus)

    def score(self, completion: str, prompt: Prompt) -> Verdict:
        """Admissible: a number from 0 to modulus-1 in plain digits without leading zeros; worked: up to 64 of them, parted by
        single blanks. Nothing else."""
        text = completion.strip(" \n")
        steps = text.split(" ") if self.params.worked else [text]
        modulus = prompt.meta["modulus"]
        if len(steps) > MOST_STEPS or not all(_RESIDUE.fullmatch(step) and int(step) < modulus for step in steps):
            return WRONG
        return Verdict(float(steps[-1] == prompt.answer), steps[-1], text)

    def oracle(self, prompt: Prompt, rng: random.Random) -> str:
        """The residue, which is the only right completion; worked: the remainder after each sign."""
        assert prompt.answer is not None
        if not self.params.worked:
            return prompt.answer
        total, steps = 0, []
        for sign, number in prompt.meta["terms"]:
            total += sign * number
            steps.append(str(total % prompt.meta["modulus"]))
        return " ".join(steps[1:])

    def perturb(self, prompt: Prompt, rng: random.Random) -> Prompt:
        """The signed terms in another order, one that is added still first. The uid differs where the text
        does."""
        terms = [list(term) for term in prompt.meta["terms"]]
        first = rng.choice([i for i, (sign, _) in enumerate(terms) if sign > 0])
        rest = terms[:first] + terms[first + 1 :]
        rng.shuffle(rest)
        return self._prompt([terms[first], *rest], prompt.meta["modulus"])

    def variant(self, prompt: Prompt, rng: random.Random) -> Prompt | None:
        """One of the numbers drawn again."""
        terms = [list(term) for term in prompt.meta["terms"]]
        rng.choice(terms)[1] = rng.randint(0, self.params.largest)
        return self._prompt(terms, prompt.meta["modulus"])

    def _prompt(self, terms: list[list[int]], modulus: int) -> Prompt:
        """``terms``: [sign, number] pairs."""
        text = "".join(("+" if sign > 0 else "-") + str(number) for sign, number in terms)[1:]
        return self.make_prompt(
            identity=[terms, modulus, "worked"] if self.params.worked else [terms, modulus],
            text=f"{text}%{modulus}:",
            answer=str(sum(sign * number for sign, number in terms) % modulus),
            meta={"terms": terms, "modulus": modulus, "chance": 1 / modulus},
        )
