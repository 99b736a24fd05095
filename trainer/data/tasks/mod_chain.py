"""Modular chain: `7+12-5%10:` → `4`. Chance policy: a uniformly drawn residue, so 1/modulus exactly."""

from __future__ import annotations

import random
import re

from pydantic import Field

from trainer.core.types import Prompt, Verdict
from trainer.data.task import WRONG, Task, TaskParams

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


class ModChain(Task):
    """A sum with plus and minus signs, reduced by a modulus; the answer class and the canonical form are the
    residue."""

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
        return len(str(self.params.modulus - 1))

    def generate(self, rng: random.Random) -> Prompt:
        """Numbers and signs uniform and independent; the first number is added."""
        p = self.params
        numbers = [rng.randint(0, p.largest) for _ in range(p.terms)]
        signs = [1] + [rng.choice((1, -1)) for _ in range(p.terms - 1)]
        return self._prompt([[s, n] for s, n in zip(signs, numbers, strict=True)], p.modulus)

    def score(self, completion: str, prompt: Prompt) -> Verdict:
        """Admissible: a number from 0 to modulus-1 in plain digits without leading zeros, nothing else."""
        text = completion.strip(" \n")
        if not _RESIDUE.fullmatch(text) or int(text) >= prompt.meta["modulus"]:
            return WRONG
        return Verdict(float(text == prompt.answer), text, text)

    def oracle(self, prompt: Prompt, rng: random.Random) -> str:
        """The residue; there is only one right completion."""
        assert prompt.answer is not None
        return prompt.answer

    def perturb(self, prompt: Prompt, rng: random.Random) -> Prompt:
        """The signed terms in another order, one that is added still first. The uid differs where the text
        does."""
        terms = [list(term) for term in prompt.meta["terms"]]
        first = rng.choice([i for i, (sign, _) in enumerate(terms) if sign > 0])
        rest = terms[:first] + terms[first + 1 :]
        rng.shuffle(rest)
        return self._prompt([terms[first], *rest], prompt.meta["modulus"])

    def _prompt(self, terms: list[list[int]], modulus: int) -> Prompt:
        """``terms``: [sign, number] pairs."""
        text = "".join(("+" if sign > 0 else "-") + str(number) for sign, number in terms)[1:]
        return self.make_prompt(
            identity=[terms, modulus],
            text=f"{text}%{modulus}:",
            answer=str(sum(sign * number for sign, number in terms) % modulus),
            meta={"terms": terms, "modulus": modulus, "chance": 1 / modulus},
        )
