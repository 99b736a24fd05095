"""Parity: `10110:` → `1` (the number of ones is odd). Chance policy: a fair coin, so 1/2 exactly."""

from __future__ import annotations

import random

from pydantic import Field

from trainer.core.types import Prompt, Verdict
from trainer.data.task import WRONG, Task, TaskParams


class ParityParams(TaskParams):
    """Settings of the parity task."""

    bits: int = Field(
        default=12, ge=2, le=64, title="Bits", description="Length of the string; there are 2^bits problems."
    )


class Parity(Task):
    """A string of bits and whether the number of ones is odd; the answer class and the canonical form are the
    digit."""

    name = "parity"
    title = "Parity"
    description = "Say whether a string of bits has an odd number of ones (1) or an even one (0)."
    checker_version = "1"
    Params = ParityParams

    def __init__(self, params: TaskParams | None = None) -> None:
        super().__init__(params)
        assert isinstance(self._params, ParityParams)
        self.params = self._params

    @property
    def max_prompt_chars(self) -> int:
        return self.params.bits + 1

    @property
    def max_completion_chars(self) -> int:
        return 1

    def generate(self, rng: random.Random) -> Prompt:
        """Bits uniform and independent."""
        return self._prompt("".join(rng.choice("01") for _ in range(self.params.bits)))

    def score(self, completion: str, prompt: Prompt) -> Verdict:
        """Admissible: the digit 0 or 1, nothing else."""
        text = completion.strip(" \n")
        if text not in ("0", "1"):
            return WRONG
        return Verdict(float(text == prompt.answer), text, text)

    def oracle(self, prompt: Prompt, rng: random.Random) -> str:
        """The digit; there is only one right completion."""
        assert prompt.answer is not None
        return prompt.answer

    def perturb(self, prompt: Prompt, rng: random.Random) -> Prompt:
        """The same bits in another order. The uid differs where the text does."""
        bits = list(prompt.meta["bits"])
        rng.shuffle(bits)
        return self._prompt("".join(bits))

    def _prompt(self, bits: str) -> Prompt:
        return self.make_prompt(
            identity=bits,
            text=f"{bits}:",
            answer=str(bits.count("1") % 2),
            meta={"bits": bits, "chance": 0.5},
        )
