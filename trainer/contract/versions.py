"""Schema versions of what outlives a release, and the migrations from each version to the next.

Every kind of document that is written to disk has a `Schema`: the field that holds its version, the version that this
release writes, and one pure step (dictionary → dictionary) from each older version to the next. Whoever reads a
document calls `migrate` first and then validates the newest form only, so that no other code knows of older ones.

To change a format: raise ``current``, write the step from the version before, and keep a recorded document of the old
version among the tests' fixtures. A new optional field with a default needs none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer import __version__

Document = dict[str, Any]
Step = Callable[[Document], Document]


class UnreadableVersion(ValueError):
    """A document of a version that this release cannot read; the message says which release can."""


@dataclass
class Schema:
    """One kind of document. ``key`` is the field with its version; a document without it is of the current version,
    as people write it by hand."""

    name: str
    current: int
    key: str = "schema_version"
    steps: dict[int, Step] = field(default_factory=dict)

    def step(self, version: int) -> Callable[[Step], Step]:
        """Registers the migration from ``version`` to the next."""

        def register(function: Step) -> Step:
            if version in self.steps or not 1 <= version < self.current:
                raise ValueError(f"{self.name}: a second or useless step from version {version}")
            self.steps[version] = function
            return function

        return register

    def version_of(self, document: Mapping[str, Any]) -> int:
        """The document's version. Raises UnreadableVersion for something that is none."""
        version = document.get(self.key, self.current)
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise UnreadableVersion(f"found {self.key} {version!r}, expected a whole number from 1 to {self.current}")
        return version

    def migrate(self, document: Mapping[str, Any]) -> Document:
        """The document in the current version; the given one stays as it is. Raises UnreadableVersion for a newer one."""
        version = self.version_of(document)
        if version > self.current:
            raise UnreadableVersion(
                f"this {self.name} has version {version}; Unsqueeze {__version__} reads versions up to {self.current}. "
                f"Use {_writer(document)}, or a newer one"
            )
        out = dict(document)
        while version < self.current:
            out = self.steps[version](out)
            version += 1
            out[self.key] = version
        return out


def _writer(document: Mapping[str, Any]) -> str:
    release = document.get("release")
    return f"Unsqueeze {release}, which wrote it" if isinstance(release, str) else "the Unsqueeze that wrote it"


CONFIG = Schema("configuration", 1)
EVENT = Schema("event", 2, key="v")
MANIFEST = Schema("checkpoint manifest", 1)
TRAIN_STATE = Schema("training state", 2)
KNOWN = Schema("list of known evaluations", 1)
SCHEMAS = (CONFIG, EVENT, MANIFEST, TRAIN_STATE, KNOWN)


@EVENT.step(1)
def _evaluations_tell_how_they_were_drawn(document: Document) -> Document:
    """Version 2 names the seed, the engine and the source of a reused evaluation; version 1 said only that one was
    reused, and had no engine but the torch sampler."""
    event = document.get("event")
    if not isinstance(event, dict) or event.get("kind") != "evaluation":
        return document
    source = {"run": "", "attempt": 0, "iteration": 0} if event.get("reused") else None
    return {**document, "event": {**event, "reused": source, "engine": "torch"}}


@TRAIN_STATE.step(1)
def _phase_of_the_last_iteration(document: Document) -> Document:
    """Version 2 keeps which phase the last completed iteration belonged to; of a phase that has just begun, version 1
    cannot tell what came before it."""
    phase = document["phase"]
    return {**document, "phase": {**phase, "trained": phase["name"] if phase["done"] else ""}}
