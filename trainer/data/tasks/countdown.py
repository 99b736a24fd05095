"""Countdown: reach the target with every number exactly once, as in `1 7 8 9=48:` → `(9-1)*7-8`.

Chance policy: a uniformly drawn valid expression, over all ordered binary trees and operators (see
``NumberSet``). Where ``/`` is allowed, expressions that divide by zero or have a non-integer intermediate are
invalid: they score 0 and the chance policy never draws them.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Literal

from pydantic import Field, field_validator, model_validator

from trainer.core.errors import ConfigError
from trainer.core.types import Prompt, Verdict, content_hash
from trainer.data.task import WRONG, Split, Task, TaskParams, split_of
from trainer.data.tasks import expressions
from trainer.data.tasks.expressions import NumberSet, number_set

DEFAULT_MAX_CHANCE = {3: 0.05, 4: 0.006, 5: 0.004}
"""By how many numbers there are. Four: the chance line stays below .25 at k = 64. Three: no filter does that."""

_DRAWS_BEFORE_GIVING_UP = 3_000
_POOL_SETS = 64
_TARGETS_PER_SET = 4


class CountdownParams(TaskParams):
    """Settings of the countdown task."""

    numbers: int = Field(default=4, ge=3, le=5, title="Numbers", description="How many numbers a problem has.")
    smallest: int = Field(
        default=1, ge=1, le=99, title="Smallest number", description="Numbers are drawn from here upwards."
    )
    largest: int = Field(
        default=20, ge=2, le=99, title="Largest number", description="Numbers are drawn up to here, inclusive."
    )
    operators: str = Field(
        default="+-*",
        min_length=1,
        max_length=4,
        pattern=r"^[-+*/]+$",
        title="Operators",
        description="Any of + - * /, without blanks. Division must come out even.",
    )
    target_min: int = Field(
        default=10, ge=1, le=999, title="Smallest target", description="Targets below it are not asked."
    )
    target_max: int = Field(
        default=99, ge=1, le=999, title="Largest target", description="Targets above it are not asked."
    )
    max_chance: float | None = Field(
        default=None,
        gt=0,
        le=1,
        title="Largest chance",
        description="Only problems that a random valid expression solves with at most this probability. "
        "Empty: .05, .006 and .004 for three, four and five numbers.",
    )
    min_solutions: int = Field(
        default=1,
        ge=1,
        le=20,
        title="Different solutions",
        description="Only problems with at least this many different solutions, by normal form.",
    )
    arrangement: Literal["free", "ordered"] = Field(
        default="free",
        title="Order in demonstrations",
        description="How solutions are written for fine-tuning: 'free' shuffles the operands of every sum and "
        "product, 'ordered' writes each solution in one way only, larger operands first.",
    )

    @field_validator("operators")
    @classmethod
    def _operators_once(cls, value: str) -> str:
        if len(set(value)) != len(value):
            raise ValueError(f"each operator may be named once, found {value!r}")
        return "".join(op for op in "+-*/" if op in value)

    @model_validator(mode="after")
    def _ranges_not_empty(self) -> CountdownParams:
        if self.smallest >= self.largest:
            raise ValueError(f"largest ({self.largest}) must be above smallest ({self.smallest})")
        if self.target_min > self.target_max:
            raise ValueError(f"target_max ({self.target_max}) is below target_min ({self.target_min})")
        return self

    @property
    def chance_limit(self) -> float:
        """``max_chance``, or the default for this many numbers."""
        return DEFAULT_MAX_CHANCE[self.numbers] if self.max_chance is None else self.max_chance


class Countdown(Task):
    """Numbers in rising order and a target; the answer class is the value, the canonical form the normal
    form."""

    name = "countdown"
    title = "Countdown"
    description = "Write an expression that uses every number exactly once and has the target as its value."
    checker_version = "1"
    Params = CountdownParams

    def __init__(self, params: TaskParams | None = None) -> None:
        super().__init__(params)
        assert isinstance(self._params, CountdownParams)
        self.params = self._params

    @property
    def max_prompt_chars(self) -> int:
        p = self.params
        return p.numbers * (len(str(p.largest)) + 1) + len(str(p.target_max)) + 1

    @property
    def max_completion_chars(self) -> int:
        n = self.params.numbers
        return n * len(str(self.params.largest)) + (n - 1) + 2 * (n - 2)

    def generate(self, rng: random.Random) -> Prompt:
        """Numbers uniform and independent, then a target uniform over those that pass the chance filter."""
        known, targets = self._draw_set(rng, 1)
        return self._prompt(known, targets[0])

    def generate_in(self, split: Split, rng: random.Random) -> Prompt:
        """Numbers as in ``generate``, then a target uniform over those of the split that pass the filters."""
        known, targets = self._draw_set(rng, 1, split)
        return self._prompt(known, targets[0])

    def score(self, completion: str, prompt: Prompt) -> Verdict:
        """Admissible: one valid expression with allowed operators and exactly the given numbers, nothing
        else."""
        numbers = prompt.meta["numbers"]
        tree = expressions.parse(completion, len(numbers))
        if tree is None or sorted(expressions.leaves(tree)) != sorted(numbers):
            return WRONG
        if not expressions.operators(tree) <= set(self.params.operators):
            return WRONG
        value = expressions.evaluate(tree)
        if value is None:
            return WRONG
        answer = str(value)
        return Verdict(float(answer == prompt.answer), answer, expressions.canonical(tree))

    def oracle(self, prompt: Prompt, rng: random.Random) -> str:
        """A uniformly chosen solution by normal form, written as ``arrangement`` says, without needless
        parentheses."""
        return self._write(self._known(prompt), prompt.meta["target"], rng)

    def perturb(self, prompt: Prompt, rng: random.Random) -> Prompt:
        """The same numbers in another order (unless all are equal), with the same uid."""
        given = list(prompt.meta["numbers"])
        shuffled = list(given)
        while len(set(given)) > 1 and shuffled == given:
            rng.shuffle(shuffled)
        return self._prompt(self._known(prompt), prompt.meta["target"], tuple(shuffled))

    def variant(self, prompt: Prompt, rng: random.Random) -> Prompt | None:
        """Another target of the same numbers; None where they have no other one."""
        known, target = self._known(prompt), prompt.meta["target"]
        other = next((t for t in self._eligible(known, rng) if t != target), None)
        return None if other is None else self._prompt(known, other)

    def demonstrations(self, split: Split, rng: random.Random) -> Iterator[tuple[Prompt, str]]:
        """As in ``Task``, but several targets of each number set are used, since counting a set is the costly
        part.

        Rows come from a pool of sets, so that neighbouring rows hardly ever share their numbers.
        """
        pool: list[tuple[NumberSet, list[int]]] = []
        while True:
            while len(pool) < _POOL_SETS:
                pool.append(self._draw_set(rng, _TARGETS_PER_SET))
            place = rng.randrange(len(pool))
            known, targets = pool[place]
            target = targets.pop()
            if not targets:
                del pool[place]
            prompt = self._prompt(known, target)
            if split_of(prompt.uid) == split:
                yield prompt, self._write(known, target, rng)

    def _known(self, prompt: Prompt) -> NumberSet:
        return number_set(tuple(sorted(prompt.meta["numbers"])), self.params.operators)

    def _write(self, known: NumberSet, target: int, rng: random.Random) -> str:
        form = rng.choice(known.solutions(target))
        return form.text if self.params.arrangement == "ordered" else expressions.arrange(form, rng)

    def _draw_set(self, rng: random.Random, most: int, split: Split | None = None) -> tuple[NumberSet, list[int]]:
        """A set of numbers and between one and ``most`` of its eligible targets (of a split), in random order."""
        p = self.params
        for _ in range(_DRAWS_BEFORE_GIVING_UP):
            numbers = tuple(sorted(rng.randint(p.smallest, p.largest) for _ in range(p.numbers)))
            known = number_set(numbers, p.operators)
            targets = list(itertools.islice(self._eligible(known, rng, split), most))
            if targets:
                return known, targets
        raise ConfigError(
            f"no countdown problem found in {_DRAWS_BEFORE_GIVING_UP} draws of numbers with operators "
            f"{p.operators!r}, targets {p.target_min}–{p.target_max}, chance at most {p.chance_limit:g} and "
            f"at least {p.min_solutions} solutions: raise max_chance, lower min_solutions or widen the range "
            "of targets"
        )

    def _eligible(self, known: NumberSet, rng: random.Random, split: Split | None = None) -> Iterator[int]:
        """The set's targets (of a split) that pass the filters, in random order."""
        p = self.params
        limit, counts = p.chance_limit * known.total, known.counts
        likely = [t for t in range(p.target_min, p.target_max + 1) if 0 < counts.get(t, 0) <= limit]
        rng.shuffle(likely)
        # Solving is the costly test, so it comes last and only until there are enough targets.
        for t in likely:
            if split is not None and split_of(self._uid(known.numbers, t)) != split:
                continue
            if p.min_solutions == 1 or len(known.solutions(t)) >= p.min_solutions:
                yield t

    def _uid(self, numbers: tuple[int, ...], target: int) -> str:
        return content_hash(self.name, [list(numbers), target])

    def _prompt(self, known: NumberSet, target: int, order: tuple[int, ...] | None = None) -> Prompt:
        numbers = known.numbers if order is None else order
        return self.make_prompt(
            identity=[list(known.numbers), target],
            text=f"{' '.join(map(str, numbers))}={target}:",
            answer=str(target),
            meta={"numbers": list(numbers), "target": target, "chance": known.chance(target)},
        )
