"""How a method says what it is: `MethodSpec`, a value with its parts named lazily.

Import-light on purpose: a web process reads specs and parameter classes without torch. A part is named as
``"package.module:Class"`` and imported only when a run builds it (`load_part`). Users' own methods come in through the
entry-point group ``unsqueeze.methods`` or a file, with no edit here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict

from trainer.contract.charts import Chart
from trainer.core.errors import ConfigError, MethodError

if TYPE_CHECKING:
    from trainer.contract.config import RlConfig

Slot = Literal[
    "curriculum",
    "prompting",
    "rollout_plan",
    "environment",
    "reward",
    "transform",
    "samples",
    "advantage_base",
    "advantage",
    "policy_objective",
    "objective",
    "policy_adapter",
    "update",
    "phases",
    "diagnostic",
    "inference",
]
SLOTS: tuple[Slot, ...] = get_args(Slot)
SINGLE_SLOTS: frozenset[Slot] = frozenset(
    {"curriculum", "rollout_plan", "environment", "samples", "advantage_base", "policy_objective", "phases"}
)
"""Slots that hold one part; two methods that both fill one are refused. The others concatenate in declared order."""


class MethodParams(BaseModel):
    """Base of every method's parameters: they become the launch form's fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


@dataclass(frozen=True)
class Paper:
    """Where the method comes from."""

    title: str
    arxiv: str
    authors: str = ""


@dataclass(frozen=True)
class MethodSpec:
    """Everything the product knows about a method before it runs.

    ``parts`` maps a slot to lazily named classes, each called with the params; ``derived`` is True where the paper left
    formulas open and ours are shown with that badge. ``problems`` are the words people search by. ``refused`` says from
    its parameters and the configuration which settings it cannot run with: their paths and the reasons; ``algorithm`` has
    the fields of the algorithm section that it starts from where a launcher gives none.
    """

    slug: str
    title: str
    summary: str
    paper: Paper
    params: type[MethodParams]
    parts: Mapping[Slot, tuple[str, ...]]
    bases: tuple[str, ...] = ()
    needs: frozenset[str] = frozenset()
    conflicts: Mapping[str, str] = field(default_factory=dict)
    algorithm: Mapping[str, Any] = field(default_factory=dict)
    refused: Callable[[Any, RlConfig], Mapping[str, str]] | None = None
    problems: tuple[str, ...] = ()
    signals: tuple[Chart, ...] = ()
    derived: bool = False
    status: Literal["ready", "experimental"] = "ready"

    def __post_init__(self) -> None:
        unknown = set(self.parts) - set(SLOTS)
        if unknown:
            raise ConfigError(f"method {self.slug}: unknown slots {sorted(unknown)}; known: {', '.join(SLOTS)}")


def load_part(name: str) -> Any:
    """The class behind ``"package.module:Class"``. Raises MethodError naming what is missing."""
    module_name, _, attribute = name.partition(":")
    module = importlib.import_module(module_name)
    part = getattr(module, attribute, None)
    if part is None:
        raise MethodError(f"part {name!r}: module {module_name} has no {attribute!r}")
    return part
