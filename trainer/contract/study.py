"""A study: one claim, the runs that decide it, and by what; all of it fixed before anything runs.

``trainer/studies/<slug>.json`` holds one `Study`. Its arms are changes to one launch document, so that what differs between
two arms can be read off; every arm runs with every seed, to the same amount on one budget axis, and is evaluated alike.
The rules by which results become a verdict are in `trainer.contract.findings`.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, JsonValue, model_validator

from trainer.contract.settings import Section

STUDY_VERSION: Literal[1] = 1
NAME = r"^[a-z0-9][a-z0-9.-]{0,47}$"
Form = Literal["full", "quick"]
Role = Literal["method", "baseline", "control", "null"]
Axis = Literal["sampled_tokens", "iterations", "device_seconds"]


class Base(Section):
    """The weights that every arm starts from: a checkpoint (a folder of ``trainer/assets``, or any path), or a launch
    document of kind sft that is run once and shared."""

    checkpoint: str | None = None
    train: dict[str, JsonValue] | None = None

    @model_validator(mode="after")
    def _one(self) -> Base:
        if (self.checkpoint is None) == (self.train is None):
            raise ValueError("base: give either checkpoint (a folder) or train (a launch document), not both")
        return self


class Arm(Section):
    """One way to train. ``changes`` is a JSON merge patch (RFC 7386: objects merge, null removes, lists are replaced) to the
    study's launch document.

    role: ``method`` what the claim is about · ``baseline`` what it is compared with · ``control`` another way to get the
    same effect · ``null`` one that must show nothing, such as a frozen run. Arms of one ``family`` (default: their name)
    are configurations of one thing, of which the best on validation speaks for it. ``budget_share`` < 1 stops early.
    """

    name: str = Field(pattern=NAME)
    title: str
    role: Role
    changes: dict[str, JsonValue] = {}
    family: str = ""
    budget_share: float = Field(default=1.0, gt=0, le=1)

    @property
    def group(self) -> str:
        """The family it belongs to."""
        return self.family or self.name


class Budget(Section):
    """What the arms have in common: the same amount on this axis. The launch document's budget.iterations stays as an
    upper limit, so give it slack on any other axis."""

    axis: Axis = "sampled_tokens"
    amount: float = Field(gt=0)

    @property
    def unit(self) -> str:
        """The axis in words."""
        return self.axis.replace("_", " ")


class Protocol(Section):
    """How every arm's last checkpoint is measured, at each temperature: on validation, where arms and temperatures are
    chosen, and on test, which alone enters the results."""

    problems: int = Field(default=200, ge=1)
    samples: int = Field(default=64, ge=1)
    validation_problems: int = Field(default=100, ge=1)
    validation_samples: int = Field(default=64, ge=1)
    temperatures: tuple[float, ...] = Field(default=(1.0,), min_length=1)
    ks: tuple[int, ...] = (1, 4, 16, 64)


class Contrast(Section):
    """The comparison that decides, fixed beforehand.

    ``arm`` and ``against`` name an arm or a family. ``metric``: ``pass@K`` on the test problems, each side at its best
    temperature on validation · ``frontier@K``: by how much pass@K of ``arm`` lies above the frontier of ``against`` (all
    arms of the family, all temperatures) at equal pass@1 · any other name: the last value of that metric of the runs.
    ``smallest_effect`` is the difference below which nobody would care, in the metric's unit.
    """

    arm: str
    against: str
    metric: str = "pass@16"
    direction: Literal["higher", "lower"] = "higher"
    smallest_effect: float = Field(default=0.02, gt=0)

    @property
    def k(self) -> int | None:
        """K of pass@K and frontier@K; None for a metric of the runs."""
        found = re.fullmatch(r"(?:pass|frontier)@(\d+)", self.metric)
        return int(found[1]) if found else None

    @property
    def is_frontier(self) -> bool:
        """Whether the comparison is at equal pass@1."""
        return self.metric.startswith("frontier@")


class Quick(Section):
    """The form that takes at most ten minutes of a processor: what it takes less of. Whatever is left out is as in full."""

    seeds: tuple[int, ...] = Field(default=(0,), min_length=1)
    amount: float | None = Field(default=None, gt=0)
    arms: tuple[str, ...] = ()
    problems: int | None = Field(default=None, ge=1)
    samples: int | None = Field(default=None, ge=1)
    validation_problems: int | None = Field(default=None, ge=1)
    validation_samples: int | None = Field(default=None, ge=1)
    temperatures: tuple[float, ...] = ()


class Study(Section):
    """The whole study. ``method`` is the slug of the method whose claim it is; ``derived``: formulas of ours stand in for
    what its paper leaves open."""

    schema_version: Literal[1] = STUDY_VERSION
    slug: str = Field(pattern=NAME)
    title: str
    method: str
    claim: str
    derived: bool = False
    base: Base
    launch: dict[str, JsonValue]
    arms: tuple[Arm, ...] = Field(min_length=2)
    seeds: tuple[int, ...] = Field(default=(0, 1, 2, 3, 4), min_length=1)
    budget: Budget
    evaluation: Protocol = Protocol()
    primary: Contrast
    quick: Quick = Quick()

    @model_validator(mode="after")
    def _consistent(self) -> Study:
        names = [arm.name for arm in self.arms]
        if len(set(names)) < len(names):
            raise ValueError(f"two arms have one name: {', '.join(names)}")
        sides = {*names, *(arm.group for arm in self.arms)}
        for where, name in (("primary.arm", self.primary.arm), ("primary.against", self.primary.against)):
            if name not in sides:
                raise ValueError(f"{where}: found {name!r}, expected an arm or a family of {', '.join(sorted(sides))}")
        if unknown := set(self.quick.arms) - set(names):
            raise ValueError(f"quick.arms: found {sorted(unknown)}, expected names of {', '.join(names)}")
        for form in ("full", "quick"):
            protocol = self.protocol(form)
            largest = min(protocol.samples, protocol.validation_samples)
            if (self.primary.k or 1) > largest:
                raise ValueError(
                    f"primary.metric {self.primary.metric} has no estimate from {largest} samples ({form} form): raise them"
                )
            for side in (self.primary.arm, self.primary.against):
                if not self.side(side, form):
                    raise ValueError(f"quick.arms leaves out {side}, which the primary contrast is about")
        return self

    def chosen(self, form: Form) -> list[Arm]:
        """The arms of this form, in order."""
        wanted = self.quick.arms if form == "quick" else ()
        return [arm for arm in self.arms if not wanted or arm.name in wanted]

    def side(self, name: str, form: Form) -> list[Arm]:
        """The arms that a name of the contrast stands for."""
        arms = self.chosen(form)
        return [arm for arm in arms if arm.name == name] or [arm for arm in arms if arm.group == name]

    def seeds_of(self, form: Form) -> tuple[int, ...]:
        """The seeds of this form."""
        return self.quick.seeds if form == "quick" else self.seeds

    def protocol(self, form: Form) -> Protocol:
        """The evaluation of this form."""
        if form == "full":
            return self.evaluation
        q = self.quick
        less = {
            name: value
            for name in ("problems", "samples", "validation_problems", "validation_samples", "temperatures")
            if (value := getattr(q, name))
        }
        return self.evaluation.model_copy(update=less)

    def amount(self, arm: Arm, form: Form) -> float:
        """Where this arm stops on the budget axis."""
        whole = self.quick.amount if form == "quick" and self.quick.amount else self.budget.amount
        return whole * arm.budget_share

    def document(self, arm: Arm, *, seed: int, checkpoint: str, form: Form) -> dict[str, Any]:
        """The launch document of one run, started from ``checkpoint``. It leaves the evaluation to whoever runs the study,
        but for validations during training as the study's launch document has them."""
        document = merged(self.launch, arm.changes)
        amount = self.amount(arm, form)
        limit = amount if self.budget.axis == "device_seconds" else max(1, round(amount))
        return merged(
            document,
            {
                "seed": seed,
                "policy": {"checkpoint": checkpoint},
                "budget": {self.budget.axis: limit},
                "evaluation": {"final_problems": 0},
            },
        )

    def evaluation_document(self, *, checkpoint: str, split: Literal["test", "both"], form: Form) -> dict[str, Any]:
        """The launch document that measures one checkpoint at all temperatures, on the test split or validation too."""
        p = self.protocol(form)
        first = nearest_to_one(p.temperatures)
        shared: dict[str, Any] = {
            name: copy.deepcopy(self.launch[name]) for name in ("task", "sampling", "rollout") if name in self.launch
        }
        return {
            **shared,
            "kind": "evaluate",
            "split": split,
            "temperatures": [t for t in p.temperatures if t != first],
            "policy": {"checkpoint": checkpoint},
            "evaluation": {
                "problems": p.validation_problems,
                "samples": p.validation_samples,
                "final_problems": p.problems,
                "final_samples": p.samples,
                "temperature": first,
            },
        }


def nearest_to_one(temperatures: Sequence[float]) -> float:
    """The temperature that stands for sampling as trained."""
    return min(temperatures, key=lambda t: abs(t - 1))


def merged(document: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """The document after a JSON merge patch (RFC 7386); neither argument changes."""
    out = copy.deepcopy(dict(document))
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        elif isinstance(value, Mapping):
            inner = out.get(name)
            out[name] = merged(inner if isinstance(inner, Mapping) else {}, value)
        else:
            out[name] = copy.deepcopy(value)
    return out
