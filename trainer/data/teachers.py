"""Verified trajectories of a teacher, by problem: what the task knows to write, or a file of JSON lines.

A line of a file is ``{"uid": …, "completion": text}``, with ``"prompt": text`` in place of the uid if wanted, and the
teacher's ``"logprobs"``, one for each token that the policy's tokenizer makes of the completion and one for the end of
sequence, where they are known. Several lines may be about one problem.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.core.errors import ConfigError
from trainer.core.types import Node, Prompt, Span, Trajectory

if TYPE_CHECKING:
    from trainer.core.context import Context


@dataclass(frozen=True)
class Lesson:
    """One completion with the log-probs of whoever wrote it."""

    text: str
    logprobs: tuple[float, ...] | None = None


class Teachers:
    """The store. ``file`` is relative to the file storage; empty asks the task."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._context: Context | None = None

    def trajectory(self, prompt: Prompt, ctx: Context, rng: random.Random) -> Trajectory | None:
        """A right answer of the teacher as a trajectory that is trained and was not sampled, not yet rewarded. None where the
        teacher has none that the checker accepts and that fits into ``sampling.max_new_tokens``."""
        lessons = self._lessons(prompt, ctx, rng)
        rng.shuffle(lessons)
        for lesson in lessons:
            ids = ctx.policy.encode_completion(lesson.text)
            if lesson.logprobs is not None and len(lesson.logprobs) != len(ids):
                raise ConfigError(
                    f"{self.file}: a completion of problem {prompt.uid} has {len(lesson.logprobs)} logprobs, expected "
                    f"{len(ids)}, one for each token of this policy's tokenizer and one for the end of sequence"
                )
            fits = len(ids) <= ctx.config.sampling.max_new_tokens
            if fits and ctx.task.score(lesson.text, prompt).reward == 1.0:
                asked = Span(ctx.policy.encode_prompt(prompt.messages), "prompt", origin="env")
                answer = Span(ids, "answer", trained=True, logprobs=lesson.logprobs, role="teacher", origin="teacher")
                return Trajectory([Node(0, [asked, answer])], prompt.uid, 0, "eos", text=lesson.text)
        return None

    def _lessons(self, prompt: Prompt, ctx: Context, rng: random.Random) -> list[Lesson]:
        if not self.file:
            text = ctx.task.teacher(prompt, rng)
            return [] if text is None else [Lesson(text)]
        self._context = ctx
        return [*self._read.get(prompt.uid, ()), *self._read.get(prompt.text, ())]

    @cached_property
    def _read(self) -> dict[str, list[Lesson]]:
        """Lessons by uid or prompt text."""
        assert self._context is not None
        path = self._context.files / Path(self.file)
        out: dict[str, list[Lesson]] = {}
        try:
            lines = path.read_text().splitlines()
        except OSError as error:
            raise ConfigError(f"the teacher's file {self.file!r} cannot be read: {error}") from error
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                key, text = row.get("uid") or row["prompt"], row["completion"]
                logprobs = row.get("logprobs")
                if not isinstance(key, str) or not isinstance(text, str):
                    raise TypeError("uid or prompt, and completion, must be texts")
                lesson = Lesson(text, None if logprobs is None else tuple(float(x) for x in logprobs))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ConfigError(
                    f'{self.file}, line {number}: {error!r}; expected {{"uid" or "prompt": …, "completion": …}}'
                ) from error
            out.setdefault(key, []).append(lesson)
        return out
