"""The built-in tasks by name. A task's module is imported when its class is first asked for."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator, Mapping
from typing import Any, cast

from pydantic import ValidationError

from trainer.core.errors import ConfigError
from trainer.data.task import Task


class _LazyTasks(Mapping[str, type[Task]]):
    """Name → task class, in the order in which they are offered; values come from ``module:Class``
    references."""

    def __init__(self, references: Mapping[str, str]) -> None:
        self._references = dict(references)

    def __getitem__(self, name: str) -> type[Task]:
        module, _, attribute = self._references[name].partition(":")
        return cast(type[Task], getattr(importlib.import_module(module), attribute))

    def __iter__(self) -> Iterator[str]:
        return iter(self._references)

    def __len__(self) -> int:
        return len(self._references)


TASKS: Mapping[str, type[Task]] = _LazyTasks(
    {
        "countdown": "trainer.data.tasks.countdown:Countdown",
        "mod_chain": "trainer.data.tasks.mod_chain:ModChain",
        "parity": "trainer.data.tasks.parity:Parity",
        "branches": "trainer.data.tasks.branches:Branches",
        "maze": "trainer.data.tasks.maze:Maze",
        "lookup": "trainer.data.tasks.lookup:Lookup",
        "reasoning_gym": "trainer.data.tasks.reasoning_gym:ReasoningGym",
        "dataset": "trainer.data.tasks.dataset:Dataset",
    }
)


PROCEDURAL = tuple(name for name in TASKS if name not in ("reasoning_gym", "dataset"))
"""The tasks that generate their problems from a seed, and need nothing but this package for it."""


def make_task(name: str, params: Mapping[str, Any] | None = None) -> Task:
    """The task ``name`` with ``params`` as read from a config. Raises ConfigError that names the nearest
    known name."""
    if name not in TASKS:
        raise ConfigError(f"task {name!r} does not exist{_nearest(name, TASKS)}; known: {', '.join(TASKS)}")
    cls = TASKS[name]
    given = dict(params or {})
    for key in given:
        if key not in cls.Params.model_fields:
            fields = cls.Params.model_fields
            raise ConfigError(
                f"task {name!r} has no setting {key!r}{_nearest(key, fields)}; known: {', '.join(fields)}"
            )
    try:
        return cls(cls.Params(**given))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        place = f"setting {where!r}" if where else "settings"
        raise ConfigError(f"task {name!r}, {place}: {first['msg']} (found {first['input']!r})") from error


def _nearest(word: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f", did you mean {close[0]!r}?" if close else ""
