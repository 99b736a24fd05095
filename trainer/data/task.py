"""What a task is: seeded problems with an exact checker, and the split of problems into train, validation and
test.

A problem's ``uid`` is the hash of its *identity* (for countdown the multiset of numbers and the target), so
that two wordings of one problem fall into the same split and no evaluation problem can be trained on.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from trainer.core.errors import ConfigError
from trainer.core.types import Message, Prompt, Verdict, content_hash

Split = Literal["train", "validation", "test"]

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
_SPLIT_OF_DIGIT: tuple[Split, ...] = ("train",) * 8 + ("validation", "test")

WRONG = Verdict(reward=0.0, answer=None, canonical=None)
"""The verdict on text in which no admissible answer can be read."""


class TaskParams(BaseModel):
    """Base of every task's settings: immutable, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Task(ABC):
    """A seeded generator of problems and their checker.

    In every built-in task a verdict has ``reward == 1.0`` iff ``answer == prompt.answer``, and ``answer`` and
    ``canonical`` are None together. Checking depends on ``prompt.meta`` and the task's params only.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    description: ClassVar[str]
    checker_version: ClassVar[str]
    """Part of an evaluation set's identity; raise it whenever a verdict may change."""
    Params: ClassVar[type[TaskParams]]
    leaves_out: bool = False
    """Whether rows that are too long for the model are left out instead of refused."""

    def __init__(self, params: TaskParams | None = None) -> None:
        """``params`` is an instance of the class's own ``Params`` (None: all defaults)."""
        chosen = self.Params() if params is None else params
        if not isinstance(chosen, self.Params):
            raise ConfigError(
                f"task {self.name!r} got params of type {type(chosen).__name__}, expected {self.Params.__qualname__}"
            )
        self._params = chosen

    @property
    @abstractmethod
    def max_prompt_chars(self) -> int:
        """Upper bound on ``len(prompt.text)`` under these params."""

    @property
    @abstractmethod
    def max_completion_chars(self) -> int:
        """Upper bound on the length of an oracle's completion under these params (end-of-sequence not
        counted)."""

    @abstractmethod
    def generate(self, rng: random.Random) -> Prompt:
        """A problem of any split. ``meta["chance"]`` is the exact success probability of the chance policy,
        or None."""

    @abstractmethod
    def score(self, completion: str, prompt: Prompt) -> Verdict:
        """The verdict on ``completion`` (text without end-of-sequence). Never raises, whatever the text."""

    @abstractmethod
    def oracle(self, prompt: Prompt, rng: random.Random) -> str:
        """One right completion, drawn so that all solutions of the problem are seen over many draws."""

    def teacher(self, prompt: Prompt, rng: random.Random) -> str | None:
        """A right completion as someone who knows the problem would write it, to learn from; None where there is none."""
        return self.oracle(prompt, rng)

    @abstractmethod
    def perturb(self, prompt: Prompt, rng: random.Random) -> Prompt:
        """The problem in another guise: exactly the same completions are right, so one output can be scored
        twice."""

    def variant(self, prompt: Prompt, rng: random.Random) -> Prompt | None:
        """Another problem of the same shape with one number changed, checked by the task's own filters; None where what came
        out is none, and for tasks that know no such change. Of any split."""
        return None

    def prepare(self, files: Path, fits: Callable[[Prompt], str | None], say: Callable[[str], None]) -> None:
        """Called once before the first problem is drawn. ``files`` is the storage root, ``fits`` says why a prompt is too
        long for the model (or None), ``say`` logs a sentence. Tasks that generate need none of these."""
        return

    def draw(self, split: Split, count: int, *, seed: int) -> list[Prompt]:
        """``count`` problems of a split with distinct uids, a longer list beginning with the shorter one of the same seed.

        Raises ConfigError when the task seems to hold fewer (1,000 draws and more in a row brought nothing new).
        """
        rng = random.Random(f"{self.name}/{split}/{seed}")
        found: dict[str, Prompt] = {}
        misses = 0
        while len(found) < count:
            prompt = self.generate_in(split, rng)
            if prompt.uid not in found:
                found[prompt.uid] = prompt
                misses = 0
                continue
            misses += 1
            if misses > 1_000 + 20 * len(found):
                raise ConfigError(
                    f"task {self.name!r} has only about {len(found)} {split} problems under these settings, "
                    f"but {count} were asked for: ask for fewer, or widen the task's ranges"
                )
        return list(found.values())

    def generate_in(self, split: Split, rng: random.Random) -> Prompt:
        """A problem of one split; a task for which drawing is costly may aim at the split instead of rejecting."""
        while True:
            prompt = self.generate(rng)
            if split_of(prompt.uid) == split:
                return prompt

    def demonstrations(self, split: Split, rng: random.Random) -> Iterator[tuple[Prompt, str]]:
        """Endless (problem, right completion) rows of one split, for fine-tuning; problems may repeat."""
        while True:
            prompt = self.generate(rng)
            if split_of(prompt.uid) == split:
                yield prompt, self.oracle(prompt, rng)

    def make_prompt(self, identity: Any, text: str, answer: str, meta: dict[str, Any]) -> Prompt:
        """A prompt of this task with a single user message; ``identity`` is JSON and alone decides the
        uid."""
        return Prompt(
            uid=content_hash(self.name, identity),
            messages=(Message("user", text),),
            answer=answer,
            task=self.name,
            meta=meta,
        )


def split_of(uid: str) -> Split:
    """The split of a problem, from its uid alone: 80 % train, 10 % validation, 10 % test."""
    return _SPLIT_OF_DIGIT[int(content_hash("split", uid), 16) % 10]


def problems(task: Task, split: Split, count: int, *, seed: int) -> list[Prompt]:
    """``count`` problems of ``split`` with distinct uids; the same arguments give the same list. Raises ConfigError."""
    if split not in SPLITS:
        raise ConfigError(f"split {split!r} does not exist, expected one of {', '.join(SPLITS)}")
    return task.draw(split, count, seed=seed)
