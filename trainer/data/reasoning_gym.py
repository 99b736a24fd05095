"""reasoning-gym's generators: settings by curriculum level, and problems as JSON in chunks that are kept on disk.

Item i of seed s is the item of seed s + i in most generators, so neighbouring seeds hold the same problems. Nothing here
relies on seeds to keep problems apart: `trainer.data.tasks.reasoning_gym` does it by the question itself.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainer.contract.files import write_whole
from trainer.core import rng
from trainer.core.errors import ConfigError
from trainer.core.types import content_hash
from trainer.data.tasks.reasoning_gym_catalogue import VERSION

CHUNK = 64
"""Items that are generated and kept together; some generators draw all items of a dataset at once."""
Item = dict[str, Any]
"""question, answer (may be None), metadata; after a round trip through JSON."""


def available() -> bool:
    """Whether reasoning-gym is installed."""
    return importlib.util.find_spec("reasoning_gym") is not None


def config_of(name: str, level: int | None, settings: Mapping[str, Any], *, seed: int, size: int) -> Any:
    """The generator's configuration: its curriculum at a level (None: the generator's defaults), then the settings over it.

    Raises ConfigError for a setting that the generator does not have, and for what it refuses.
    """
    from reasoning_gym.factory import CURRICULA, DATASETS

    config_class = DATASETS[name][1]
    known = [field.name for field in dataclasses.fields(config_class) if field.name not in ("seed", "size")]
    for key in settings:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            raise ConfigError(f"task.params.settings: {name} has no setting {key!r}; {hint}")
    try:
        if level is None or name not in CURRICULA:
            config = config_class(seed=seed, size=size, **settings)
        else:
            curriculum = CURRICULA[name]()
            curriculum.set_global_level(level)
            config = curriculum.generate_configuration({"seed": seed, "size": size})
            config = dataclasses.replace(config, **settings)
        if hasattr(config, "validate"):
            config.validate()
    except (AssertionError, ValueError, TypeError) as error:
        where = "its own defaults" if level is None else f"level {level}"
        raise ConfigError(
            f"task.params: {name} refuses {where} with the settings {dict(settings)}: {error}; choose another level, or other "
            "settings"
        ) from error
    return config


def dataset_of(name: str, config: Any) -> Any:
    """The generator itself. Raises ConfigError where it cannot make problems of its configuration."""
    from reasoning_gym.factory import DATASETS

    try:
        return DATASETS[name][0](config=config)
    except (AssertionError, ValueError) as error:
        raise ConfigError(f"task.params: {name} cannot make problems under these settings: {error}") from error


def stream(
    name: str, level: int | None, settings: Mapping[str, Any], *, seed: int, cache: Path | None
) -> Iterator[Item]:
    """Endless items, the same for the same arguments. ``cache`` keeps chunks by name, version, configuration and seed; a
    chunk that cannot be read is made anew."""
    begin = rng.key("reasoning-gym", seed) % (1 << 30)
    shown = dataclasses.asdict(config_of(name, level, settings, seed=0, size=CHUNK))
    folder = cache / content_hash(VERSION, name, json.loads(json.dumps(shown, default=str)), seed) if cache else None
    at = 0
    while True:
        config = config_of(name, level, settings, seed=begin + at, size=CHUNK)
        path = folder / f"{at:08d}.json" if folder else None
        items = _kept(path)
        if items is None:
            items = _made(name, config)
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, json.dumps(items))
        yield from items
        at += CHUNK


def _kept(path: Path | None) -> list[Item] | None:
    if path is None or not path.is_file():
        return None
    try:
        items = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return items if isinstance(items, list) and len(items) == CHUNK else None


def _made(name: str, config: Any) -> list[Item]:
    dataset = dataset_of(name, config)
    # What is kept and what is made just now must be the same.
    made: list[Item] = json.loads(json.dumps([dataset[i] for i in range(CHUNK)], default=str))
    return made


def estimated_questions(drawn: int, distinct: int) -> float:
    """How many different questions there seem to be, from ``drawn`` draws that gave ``distinct`` ones: the P that solves
    distinct = P·(1 − exp(−drawn/P)), the expectation of equally likely draws; infinite where none repeated."""
    if distinct >= drawn:
        return math.inf
    low, high = float(distinct), float(drawn) ** 2
    for _ in range(100):
        middle = (low + high) / 2
        if middle * -math.expm1(-drawn / middle) < distinct:
            low = middle
        else:
            high = middle
    return (low + high) / 2
