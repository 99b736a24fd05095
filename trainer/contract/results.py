"""What a study has measured: counts and places on the axes, no conclusions. `trainer.contract.findings` draws those."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from trainer.contract.settings import Section
from trainer.contract.study import Form, Study

Split = Literal["validation", "test"]


class RunRecord(Section):
    """One finished run of an arm. ``phases`` counts its iterations by phase; ``metric`` is the last value of the primary
    metric where that is a metric of the runs."""

    arm: str
    seed: int
    weights_hash: str
    iterations: int = 0
    optimizer_steps: int = 0
    sampled_tokens: int = 0
    device_seconds: float = 0.0
    phases: dict[str, int] = {}
    metric: float | None = None


class SetRecord(Section):
    """An evaluation set: its problems in order, and what chance solves of each (null where the task does not say)."""

    id: str
    split: Split
    temperature: float
    samples: int
    uids: tuple[str, ...]
    chance: tuple[float, ...] | None = None


class CountRecord(Section):
    """Correct answers of one set of weights to each problem of a set, in the set's order, and how many were cut off."""

    weights_hash: str
    set_id: str
    correct: tuple[int, ...]
    truncated: int = 0


class StudyResults(Section):
    """Everything measured by one form of one study so far. ``study_hash`` tells results of another wording of the study."""

    slug: str
    form: Form
    study_hash: str
    base_weights_hash: str = ""
    runs: tuple[RunRecord, ...] = ()
    sets: tuple[SetRecord, ...] = ()
    counts: tuple[CountRecord, ...] = Field(default=(), repr=False)

    def values(self, weights_hash: str, split: Split, temperature: float) -> tuple[SetRecord, CountRecord] | None:
        """The counts of these weights on this set; None where that was not measured."""
        for one in self.sets:
            if (one.split, one.temperature) == (split, temperature):
                for counts in self.counts:
                    if (counts.weights_hash, counts.set_id) == (weights_hash, one.id):
                        return one, counts
        return None


def study_hash(study: Study, form: Form) -> str:
    """Digest of what the results of this form depend on: not its words, and not what only the other form has."""
    arms = [
        {**arm.model_dump(mode="json", exclude={"title"}, exclude_defaults=True), "amount": study.amount(arm, form)}
        for arm in study.chosen(form)
    ]
    parts = {name: getattr(study, name).model_dump(mode="json", exclude_defaults=True) for name in ("base", "primary")}
    protocol = study.protocol(form).model_dump(mode="json", exclude_defaults=True)
    rest = {"arms": arms, "launch": study.launch, "axis": study.budget.axis, "seeds": list(study.seeds_of(form))}
    return digest({**parts, **rest, "protocol": protocol})


def digest(document: Mapping[str, object]) -> str:
    """Sixteen hexadecimal digits of a JSON document's SHA-256."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]
