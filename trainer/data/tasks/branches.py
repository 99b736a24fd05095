"""Sums of independent sums, and chains in which every step needs the one before: `(3+4)+(5+1)=` and `3+4*2+5=`, modulo 10.

Worked out digit by digit, the independent parts can be done side by side; the chain cannot. A rule writes both as fork-join
traces too, with the single-letter tags of `trainer.rollout.fork_join`; on chains it forks wrongly, as a rewriter does that
takes any text apart.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pydantic import Field

from trainer.core.types import Message, Prompt, Verdict
from trainer.data.task import WRONG, Split, Task, TaskParams, split_of

_LAST = re.compile(r"=([0-9])")


class BranchesParams(TaskParams):
    """Settings of the branches."""

    parts: int = Field(default=3, ge=2, le=8, title="Parts", description="Independent sums in a problem.")
    numbers: int = Field(default=4, ge=2, le=16, title="Numbers", description="Digits in each part.")
    chains: float = Field(
        default=0.5, ge=0, le=1, title="Chains", description="Share of problems that are one long dependent chain."
    )
    forks: float = Field(
        default=0.0,
        ge=0,
        le=1,
        title="Forked traces",
        description="Share of demonstrations that are written as fork-join traces.",
    )


class Branches(Task):
    """The answer class and the canonical form are the last digit."""

    name = "branches"
    title = "Branches"
    description = "Add up independent sums, or work out one long chain, and give the last digit."
    checker_version = "1"
    Params = BranchesParams

    def __init__(self, params: TaskParams | None = None) -> None:
        super().__init__(params)
        assert isinstance(self._params, BranchesParams)
        self.params = self._params

    @property
    def max_prompt_chars(self) -> int:
        p = self.params
        return p.parts * (2 * p.numbers + 2) + 1

    @property
    def max_completion_chars(self) -> int:
        p = self.params
        return p.parts * 4 * p.numbers + 4 * p.parts + p.parts + 1

    def generate(self, rng: random.Random) -> Prompt:
        """Digits uniform; in a chain each operator is + or * with equal chance."""
        p = self.params
        if rng.random() < p.chains:
            first, *rest = [str(rng.randint(0, 9)) for _ in range(p.parts * p.numbers)]
            return self._prompt([first + "".join(rng.choice("+*") + digit for digit in rest)])
        return self._prompt(["+".join(str(rng.randint(0, 9)) for _ in range(p.numbers)) for _ in range(p.parts)])

    def score(self, completion: str, prompt: Prompt) -> Verdict:
        """Admissible: any working that ends in an equals sign and one digit."""
        text = completion.strip(" \n")
        if not _LAST.fullmatch(text[-2:]):
            return WRONG
        return Verdict(float(text[-1] == prompt.answer), text[-1], text[-1])

    def oracle(self, prompt: Prompt, rng: random.Random) -> str:
        """The working, one part after the other."""
        parts: Sequence[str] = prompt.meta["parts"]
        if len(parts) == 1:
            return worked(parts[0])
        return " ".join([*map(worked, parts), worked(joined(parts))])

    def perturb(self, prompt: Prompt, rng: random.Random) -> Prompt:
        """Parts and their digits in another order; of a chain, the first two digits."""
        parts = list(prompt.meta["parts"])
        if len(parts) == 1:
            chain = parts[0]
            return self._prompt([chain[2] + chain[1] + chain[0] + chain[3:]])
        digits = [part.split("+") for part in parts]
        for part in digits:
            rng.shuffle(part)
        rng.shuffle(digits)
        return self._prompt(["+".join(part) for part in digits])

    def demonstrations(self, split: Split, rng: random.Random) -> Iterator[tuple[Prompt, str]]:
        """The oracle's workings, and for the chosen share fork-join traces: whole, and for every thread but the first its
        continuation of the outlines, which is what a forked thread sees."""
        while True:
            prompt = self.generate(rng)
            if split_of(prompt.uid) != split:
                continue
            if rng.random() >= self.params.forks:
                yield prompt, self.oracle(prompt, rng)
                continue
            outlines, threads, end = self._trace(prompt)
            heads = [f"t{i}:" for i in range(1, len(threads) + 1)]
            whole = "".join(head + body + "u" for head, body in zip(heads, threads, strict=True))
            yield prompt, f"{outlines}{whole}q{end}"
            for head, body in zip(heads[1:], threads[1:], strict=True):
                yield replace(prompt, messages=(Message("user", prompt.text + outlines + head),)), body + "u"

    def _trace(self, prompt: Prompt) -> tuple[str, list[str], str]:
        """Outlines, the threads' bodies, and what follows the block. A chain is cut as if its pieces were independent."""
        parts: Sequence[str] = prompt.meta["parts"]
        if len(parts) == 1:
            size = 2 * self.params.numbers
            parts = [parts[0][i : i + size - 1] for i in range(0, len(parts[0]), size)]
        outlines = "".join(f"a{i}b" for i in range(1, len(parts) + 1))
        return f"po{outlines}c", [worked(part) for part in parts], worked(joined(parts))

    def _prompt(self, parts: list[str]) -> Prompt:
        """``parts``: sums of digits, or a single chain that is worked out from left to right."""
        independent = len(parts) > 1
        text = "+".join(f"({part})" for part in parts) if independent else parts[0]
        answer = worked(joined(parts))[-1] if independent else worked(parts[0])[-1]
        meta = {"parts": parts, "independent": independent, "chance": 0.1}
        return self.make_prompt(identity=parts, text=f"{text}=", answer=answer, meta=meta)


def worked(chain: str) -> str:
    """``3+4*2`` → ``3+4=7*2=4``: from left to right, modulo 10."""
    value = int(chain[0])
    out = chain[0]
    for operator, digit in zip(chain[1::2], chain[2::2], strict=True):
        value = (value + int(digit) if operator == "+" else value * int(digit)) % 10
        out += f"{operator}{digit}={value}"
    return out


def joined(parts: Sequence[str]) -> str:
    """The sum of the parts' values as a chain."""
    return "+".join(worked(part)[-1] for part in parts)
