"""Problems of reasoning-gym (Apache-2.0), a catalogue of about a hundred procedural generators with checkers of their own.

What its users have run into is handled here and in `trainer.rewards.gym`: neighbouring seeds share problems, so problems
are told apart, and split, by the question; checkers give partial credit to text around an answer, a few hundredths to
anything, full marks to nan, or raise; two can be satisfied without an answer and are not offered.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from trainer.core.errors import ConfigError
from trainer.core.types import Message, Prompt, Verdict, content_hash
from trainer.data.reasoning_gym import Item, available, estimated_questions, stream
from trainer.data.task import WRONG, Split, Task, TaskParams, split_of
from trainer.data.tasks.reasoning_gym_catalogue import LEVELS, OFFERED, UNSOUND, VERSION, WITHOUT_GOLD

CACHE = "cache/reasoning-gym"
TIMES_THE_TEST = 20
INSTRUCTION = "Give the final answer between <answer> and </answer>."


class ReasoningGymParams(TaskParams):
    """Which generator, how hard, and how it is asked."""

    generator: Literal[OFFERED] = Field(  # type: ignore[valid-type]
        default="chain_sum", title="Generator", description="What kind of problem; see reasoning-gym's gallery."
    )
    level: int | None = Field(
        default=0,
        ge=0,
        le=100,
        title="Level",
        description="Of the generator's curriculum, 0 the easiest; empty: the generator's own default settings.",
    )
    settings: str = Field(
        default="",
        max_length=4000,
        title="Generator settings",
        description='JSON object over the level\'s settings: {"min_terms": 3, "max_terms": 3}.',
        json_schema_extra={"advanced": True},
    )
    instruction: str = Field(
        default=INSTRUCTION,
        max_length=4000,
        title="Instruction",
        description="A line after every question; empty for a model that was taught the bare format.",
    )
    system: str = Field(
        default="",
        max_length=4000,
        title="System prompt",
        description="For models with a chat template.",
        json_schema_extra={"advanced": True},
    )
    answer_in: Literal["tag", "tag or whole"] = Field(
        default="tag or whole",
        title="Answer stands in",
        description="<answer> tags (the last one counts), or the whole text where there are none.",
        json_schema_extra={"advanced": True},
    )
    long_prompts: Literal["refuse", "leave_out"] = Field(
        default="refuse",
        title="Prompts that do not fit",
        description="Refuse the run, or leave out problems that are too long for the model.",
        json_schema_extra={"advanced": True},
    )

    @field_validator("generator", mode="before")
    @classmethod
    def _sound(cls, name: Any) -> Any:
        if name in UNSOUND:
            raise ValueError(f"{name} is not offered, because {UNSOUND[name]}")
        return name

    @field_validator("settings")
    @classmethod
    def _object(cls, text: str) -> str:
        if not text.strip():
            return ""
        try:
            value = json.loads(text)
        except ValueError as error:
            raise ValueError(f"is no JSON: {error}; expected an object") from error
        if not isinstance(value, dict):
            raise ValueError(f"is a {type(value).__name__}, expected a JSON object")
        return text

    @model_validator(mode="after")
    def _has_level(self) -> ReasoningGymParams:
        levels = LEVELS[self.generator]
        if levels and self.level is not None and self.level >= levels:
            raise ValueError(f"{self.generator} has levels 0 to {levels - 1}, found {self.level}")
        return self


class ReasoningGym(Task):
    """Questions with the generator's own checker behind a threshold, in a process of its own."""

    name = "reasoning_gym"
    title = "reasoning-gym"
    description = "Problems of one of about a hundred generators: arithmetic, logic, puzzles, graphs, text."
    checker_version = "1"
    Params = ReasoningGymParams

    def __init__(self, params: TaskParams | None = None) -> None:
        super().__init__(params)
        assert isinstance(self._params, ReasoningGymParams)
        self.params = p = self._params
        self.leaves_out = p.long_prompts == "leave_out"
        self.settings: dict[str, Any] = json.loads(p.settings) if p.settings else {}
        asked = content_hash(p.instruction, p.system, p.answer_in, p.level, p.settings)
        self.checker_version = f"1/{VERSION}/{asked[:8]}"  # type: ignore[misc]
        self._cache: Path | None = None
        self._fits: Callable[[Prompt], str | None] = lambda prompt: None
        self._say: Callable[[str], None] = lambda text: None
        self._scorer: Any = None

    def prepare(self, files: Path, fits: Callable[[Prompt], str | None], say: Callable[[str], None]) -> None:
        """Checks that the package is there; items are kept below ``files``. Raises ConfigError."""
        if not available():
            raise ConfigError(
                "task.name: reasoning_gym needs the package reasoning-gym, which is not installed in the trainer's "
                "environment; pip install -r requirements-tasks.txt"
            )
        self._cache, self._fits, self._say = files / CACHE, fits, say

    @property
    def max_prompt_chars(self) -> int:
        return 0

    @property
    def max_completion_chars(self) -> int:
        return 0

    def draw(self, split: Split, count: int, *, seed: int) -> list[Prompt]:
        """``count`` problems with distinct questions; a longer list begins with the shorter one of the same seed. Raises
        ConfigError where there seem to be fewer."""
        found: dict[str, Prompt] = {}
        seen: set[str] = set()
        drawn = since_new = too_long = 0
        items = self._items(seed)
        while len(found) < count:
            prompt = self._prompt(next(items))
            drawn += 1
            since_new += 1
            if prompt.uid in seen:
                if since_new > 2_000 + 20 * len(found):
                    raise ConfigError(
                        f"{self.params.generator} at these settings has only about {len(seen)} questions, {len(found)} of them "
                        f"in the {split} split, but {count} were asked for: ask for fewer, or take a higher level"
                    )
                continue
            seen.add(prompt.uid)
            if split_of(prompt.uid) != split:
                continue
            since_new = 0
            reason = self._fits(prompt)
            if reason is None:
                found[prompt.uid] = prompt
            elif self.leaves_out:
                too_long += 1
                if too_long > 20 * (len(found) + 50):
                    raise ConfigError(f"nearly all problems are too long: {reason}")
            else:
                raise ConfigError(
                    f"{self.params.generator}: {reason}; set task.params.long_prompts to leave_out, lower "
                    "sampling.max_new_tokens, or take a model with more positions"
                )
        self._tell(split, count, drawn, len(seen), too_long)
        return list(found.values())

    def _tell(self, split: Split, count: int, drawn: int, distinct: int, too_long: int) -> None:
        if too_long:
            self._say(f"{too_long} {split} problems were left out because they do not fit the model")
        questions = estimated_questions(drawn, distinct)
        if split != "train" and questions < TIMES_THE_TEST * count:
            self._say(
                f"{self.params.generator} at these settings seems to have about {questions:.0f} different questions; for "
                f"{count} {split} problems, {TIMES_THE_TEST * count} or more are advisable, or the rest can be learnt by heart"
            )

    def demonstrations(self, split: Split, rng: random.Random) -> Iterator[tuple[Prompt, str]]:
        """Endless (problem, gold answer) rows of one split. Raises ConfigError for a generator without gold answers."""
        for item in self._items(rng.getrandbits(32)):
            prompt = self._prompt(item)
            if split_of(prompt.uid) == split and (not self.leaves_out or self._fits(prompt) is None):
                yield prompt, self.oracle(prompt, rng)

    def generate(self, rng: random.Random) -> Prompt:
        """A problem of any split."""
        return self._prompt(next(self._items(rng.getrandbits(32))))

    def _items(self, seed: int) -> Iterator[Item]:
        p = self.params
        return stream(p.generator, p.level, self.settings, seed=seed, cache=self._cache)

    def _prompt(self, item: Item) -> Prompt:
        p, question = self.params, item["question"]
        text = f"{question.rstrip()}\n{p.instruction}" if p.instruction else question
        system = (Message("system", p.system),) if p.system else ()
        return Prompt(
            uid=content_hash(self.name, p.generator, " ".join(question.split())),
            messages=(*system, Message("user", text)),
            answer=item["answer"],
            task=self.name,
            meta={"chance": None, "entry": item},
        )

    def score(self, completion: str, prompt: Prompt) -> Verdict:
        """Right where the generator's checker gives 0.99 or more to the extracted answer."""
        from trainer.rewards.extract import extract
        from trainer.rewards.gym import GymScorer, Source

        found = extract(completion, ("tag",) if self.params.answer_in == "tag" else ("tag", "whole"))
        if found is None or not found.text:
            return WRONG
        self._scorer = self._scorer or GymScorer()
        source = Source(self.params.generator, self.params.level, json.dumps(self.settings, sort_keys=True))
        right, by = self._scorer(source, prompt.meta["entry"], found.text)
        return gym_verdict(right, by, found.text, completion, prompt)

    def oracle(self, prompt: Prompt, rng: random.Random) -> str:
        """The gold answer as it is asked for."""
        if prompt.answer is None:
            raise ConfigError(
                f"{self.params.generator} gives no gold answers, so there is nothing to fine-tune on; of the generators "
                f"only {', '.join(sorted(WITHOUT_GOLD))} are like that"
            )
        return f"<answer>{prompt.answer}</answer>" if self.params.instruction else prompt.answer

    def teacher(self, prompt: Prompt, rng: random.Random) -> str | None:
        """The gold answer as it is asked for, where there is one."""
        return None if prompt.answer is None else self.oracle(prompt, rng)

    def perturb(self, prompt: Prompt, rng: random.Random) -> Prompt:
        """The same problem: no other guise of it is known."""
        return prompt


def gym_verdict(right: bool, by: str, answer: str, completion: str, prompt: Prompt) -> Verdict:
    """The answer's class is the gold answer where it is right, whatever its text; where it is wrong, it is another one."""
    key = " ".join(answer.split())
    if right:
        key = prompt.answer if prompt.answer is not None else key
    elif key == prompt.answer:
        key = f"{key} (refused)"
    return Verdict(float(right), key, " ".join(completion.split()), by)
