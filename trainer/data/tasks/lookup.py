"""Lookup in a long context: `ab=cd fg=hk …?ab:` → `cd`, or with two hops `ab=cd cd=x9 …?ab:` → `x9`.

Chance policy: one of the final values in the context, uniformly, so 1/chains exactly.
"""

from __future__ import annotations

import random
import re

from pydantic import Field, model_validator

from trainer.core.types import Prompt, Verdict
from trainer.data.alphabet import LETTERS
from trainer.data.task import WRONG, Split, Task, TaskParams, split_of

_WORD = re.compile("[a-z]+")


class LookupParams(TaskParams):
    """Settings of the lookup task."""

    hops: int = Field(
        default=1, ge=1, le=4, title="Hops", description="How many entries lead from the key to the answer."
    )
    shortest: int = Field(
        default=64, ge=24, le=100_000, title="Shortest context", description="Least characters of a prompt, about."
    )
    longest: int = Field(
        default=64, ge=24, le=100_000, title="Longest context", description="Most characters of a prompt."
    )
    longest_held_out: int = Field(
        default=0,
        ge=0,
        le=100_000,
        title="Longest in evaluations",
        description="Validation and test problems go up to here; 0 keeps to the longest of training.",
    )
    word: int = Field(default=2, ge=2, le=6, title="Word length", description="Letters of a key and of a value.")

    @model_validator(mode="after")
    def _fits(self) -> LookupParams:
        if self.longest < self.shortest:
            raise ValueError(f"longest {self.longest} must be at least shortest {self.shortest}")
        if self.longest_held_out and self.longest_held_out < self.shortest:
            raise ValueError(f"longest_held_out {self.longest_held_out} must be 0 or at least shortest {self.shortest}")
        least = 2 * self.chain + self.word + 2
        if self.shortest < least:
            raise ValueError(f"shortest {self.shortest} leaves no room for two chains, which take {least} characters")
        words = max(self.longest, self.longest_held_out) // self.chain * (self.hops + 1)
        if words > len(LETTERS) ** self.word // 2:
            raise ValueError(f"word {self.word}: too few words of that length for {words} in the longest context")
        return self

    @property
    def chain(self) -> int:
        """Characters of a chain's entries, ``ab=cd `` each."""
        return self.hops * (2 * self.word + 2)


class Lookup(Task):
    """Chains of ``hops`` entries among other chains of the same length, shuffled, and the first key of one of them. The
    answer class and the canonical form are the chain's last word. All words of a context are distinct.

    ``meta["length"]`` is the number of characters of the prompt.
    """

    name = "lookup"
    title = "Lookup"
    description = "Find the value of a key in a long list of entries, directly or through other keys."
    checker_version = "1"
    Params = LookupParams

    def __init__(self, params: TaskParams | None = None) -> None:
        super().__init__(params)
        assert isinstance(self._params, LookupParams)
        self.params = self._params

    @property
    def max_prompt_chars(self) -> int:
        return max(self.params.longest, self.params.longest_held_out)

    @property
    def max_completion_chars(self) -> int:
        return self.params.word

    def generate(self, rng: random.Random) -> Prompt:
        """As many chains as fit into a length drawn uniformly from ``shortest`` … ``longest``."""
        return self._drawn(rng, self.params.longest)

    def generate_in(self, split: Split, rng: random.Random) -> Prompt:
        """Held-out problems go up to their own longest context."""
        longest = self.params.longest if split == "train" else self.max_prompt_chars
        while True:
            prompt = self._drawn(rng, longest)
            if split_of(prompt.uid) == split:
                return prompt

    def score(self, completion: str, prompt: Prompt) -> Verdict:
        """Admissible: one word of the right length, nothing else."""
        text = completion.strip(" \n")
        if len(text) != self.params.word or not _WORD.fullmatch(text):
            return WRONG
        return Verdict(float(text == prompt.answer), text, text)

    def oracle(self, prompt: Prompt, rng: random.Random) -> str:
        """The value; there is only one right completion."""
        assert prompt.answer is not None
        return prompt.answer

    def perturb(self, prompt: Prompt, rng: random.Random) -> Prompt:
        """The same entries in another order, which is the same problem."""
        entries = list(prompt.meta["entries"])
        rng.shuffle(entries)
        return self._prompt(entries, prompt.meta["key"])

    def _drawn(self, rng: random.Random, longest: int) -> Prompt:
        p = self.params
        length = rng.randint(p.shortest, longest)
        chains = (length - p.word - 1) // p.chain
        words = self._words(rng, chains * (p.hops + 1))
        entries: list[str] = []
        for first in range(0, len(words), p.hops + 1):
            entries += [f"{words[first + i]}={words[first + i + 1]}" for i in range(p.hops)]
        rng.shuffle(entries)
        return self._prompt(entries, words[0])

    def _words(self, rng: random.Random, count: int) -> list[str]:
        found: dict[str, None] = {}
        while len(found) < count:
            found["".join(rng.choice(LETTERS) for _ in range(self.params.word))] = None
        return list(found)

    def _prompt(self, entries: list[str], key: str) -> Prompt:
        table = dict(entry.split("=") for entry in entries)
        answer = key
        for _ in range(self.params.hops):
            answer = table[answer]
        text = " ".join(entries) + f"?{key}:"
        chains = len(entries) // self.params.hops
        return self.make_prompt(
            identity=[sorted(entries), key],
            text=text,
            answer=answer,
            meta={"entries": entries, "key": key, "hops": self.params.hops, "length": len(text), "chance": 1 / chains},
        )
