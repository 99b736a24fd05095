"""Which inputs the launch form has for a choice of kind, task, base algorithm and methods: all from the contract's models.

A slot has a path in the document, as problems name it (`methods.0.params.alpha`), and the name of its input
(`methods.sps.params.alpha`), which stays the same when methods before it come and go.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from trainer.contract.config import KINDS, AlgorithmSection, Architecture, LoraSection, SftSection, section_of
from trainer.contract.forms import FormField, fields_of
from trainer.contract.presets import PRESETS, fill
from trainer.core.registry import MethodSpec
from trainer.data.tasks import TASKS
from trainer.methods import all_methods, starting_algorithm

if TYPE_CHECKING:
    from trainer.data.task import Task

KIND_TITLES = {
    "rl": (
        "Reinforcement learning",
        "Rewards from the task's checker; a method decides how the policy learns from them.",
    ),
    "sft": ("Fine-tuning", "Supervised, on the task's own solutions. This is also how a base checkpoint is made."),
    "evaluate": ("Evaluation", "Samples a checkpoint on the test split; no training."),
}
DATASET = "dataset"
OF_A_VERSION = frozenset({"uri", "content_hash", "sha256"})
"""Parameters of the task "dataset" that choosing a version fills in."""
SECRETS = "secrets"
"""Path of the names of secrets: what there is to choose from, the team decides."""
MISSING = object()
"""What a reader of values gives for an input that it does not know."""


@dataclass(frozen=True)
class Choice:
    """What decides which inputs there are. `fresh` is True for a new architecture instead of a checkpoint; `version` is the
    dataset version's id, for the task "dataset".
    """

    kind: str = "rl"
    task: str = "countdown"
    preset: str = "grpo"
    methods: tuple[str, ...] = ()
    fresh: bool = False
    version: int | None = None

    def known(self) -> "Choice":
        """The same with every unknown name replaced by the first known one, so that a form can be drawn."""
        return Choice(
            kind=self.kind if self.kind in KINDS else "rl",
            task=self.task if self.task in TASKS else next(iter(TASKS)),
            preset=self.preset if self.preset in PRESETS else next(iter(PRESETS)),
            methods=tuple(slug for slug in dict.fromkeys(self.methods) if slug in all_methods()),
            fresh=self.fresh,
            version=self.version if self.task == DATASET else None,
        )

    @property
    def method_specs(self) -> list[MethodSpec]:
        return [all_methods()[slug] for slug in self.methods]

    @property
    def task_class(self) -> "type[Task]":
        return TASKS[self.task]


@dataclass(frozen=True)
class Slot:
    """An input of the form without its value. `default` is a JSON value."""

    field: FormField
    path: str
    name: str
    default: Any

    @property
    def id(self) -> str:
        return "f-" + self.name.replace(".", "-")


@dataclass(frozen=True)
class Group:
    """Slots that stand together; `key` is where the template puts them."""

    key: str
    title: str
    slots: tuple[Slot, ...]


def groups_of(choice: Choice, *, secrets: Sequence[str] = ()) -> list[Group]:
    """The inputs of a known choice, in the order in which people think; `secrets` are those that can be named."""
    found = (
        [Group("policy", "New architecture", tuple(_section(Architecture, "policy.architecture.")))]
        if choice.fresh
        else []
    )
    if choice.kind != "evaluate" and not choice.fresh:
        found.append(Group("lora", "Adapters", tuple(_section(LoraSection, "policy.lora."))))
    found.append(Group("task", "Task", tuple(_task_slots(choice))))
    if choice.kind == "rl":
        found.append(Group("algorithm", PRESETS[choice.preset].title, tuple(_algorithm_slots(choice))))
        for position, spec in enumerate(choice.method_specs):
            found.append(Group(f"method:{spec.slug}", spec.title, tuple(_method_slots(spec, position))))
    if choice.kind == "sft":
        found.append(Group("sft", "Fine-tuning", tuple(_section(SftSection, "sft.", kind="sft"))))
    sections = (
        ["sampling", "rollout", "hardware", "evaluation"]
        if choice.kind == "evaluate"
        else ["sampling", "rollout", "hardware", "evaluation", "budget", "checkpoints", "optimizer"]
    )
    titles = {
        "sampling": "Sampling",
        "rollout": "Engine",
        "hardware": "Hardware",
        "evaluation": "Evaluation",
        "budget": "Budget",
        "checkpoints": "Checkpoints",
        "optimizer": "Optimiser",
    }
    for name in sections:
        model = section_of(KINDS[choice.kind].model_fields[name])
        assert model is not None
        slots = _section(model, f"{name}.", kind=choice.kind, section=name)
        found.append(Group(name, titles[name], tuple(slots)))
    plain = fields_of(KINDS[choice.kind], skip=frozenset({"schema_version", "kind"}))
    own = [
        replace(f, widget="multichoice", choices=tuple(secrets)) if f.path == SECRETS else f
        for f in plain
        if f.path != SECRETS or secrets
    ]
    found.append(Group("run", "This run", tuple(Slot(f, f.path, f.path, f.default) for f in own)))
    return found


def _section(model: type[BaseModel], prefix: str, *, kind: str = "", section: str = "") -> Iterator[Slot]:
    """Slots of a section; a kind may start a section from other values than the section itself does."""
    values: Mapping[str, Any] = {}
    if section:
        default = KINDS[kind].model_fields[section].default
        values = default.model_dump(mode="json") if isinstance(default, BaseModel) else {}
    for field in fields_of(model, prefix=prefix):
        yield Slot(field, field.path, field.path, values.get(field.path.removeprefix(prefix), field.default))


def _task_slots(choice: Choice) -> Iterator[Slot]:
    section = section_of(KINDS[choice.kind].model_fields["task"])
    assert section is not None
    skip = OF_A_VERSION if choice.task == DATASET else frozenset[str]()
    for field in fields_of(choice.task_class.Params, prefix="task.params.", skip=skip):
        yield Slot(field, field.path, field.path.replace("task.params.", f"task.params.{choice.task}."), field.default)
    for field in fields_of(section, prefix="task.", skip=frozenset({"name"})):
        yield Slot(field, field.path, field.path, field.default)


def _algorithm_slots(choice: Choice) -> Iterator[Slot]:
    values = fill({"preset": choice.preset}, starting_algorithm(choice.methods))
    for field in fields_of(AlgorithmSection, prefix="algorithm.", skip=frozenset({"preset"})):
        default = values.get(field.path.removeprefix("algorithm."), field.default)
        # What makes the preset what it is stands in view.
        own = field.path.removeprefix("algorithm.") in values
        yield Slot(replace(field, advanced=field.advanced and not own), field.path, field.path, default)


def _method_slots(spec: MethodSpec, position: int) -> Iterator[Slot]:
    for field in fields_of(spec.params, prefix="params."):
        yield Slot(field, f"methods.{position}.{field.path}", f"methods.{spec.slug}.{field.path}", field.default)


# Values as text and back


def as_typed(value: Any) -> str | bool | list[str]:
    """A JSON value as its input shows it: 1e-05 -> "1e-05", None -> "", 3.0 -> "3", a line break in a list's text -> "\\n"."""
    if isinstance(value, bool):
        return value
    if isinstance(value, (list, tuple)):
        return lines_of([str(item) for item in value])
    if value is None:
        return ""
    if isinstance(value, float) and math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def lines_of(texts: Sequence[str]) -> list[str]:
    """Texts with their line breaks, tabs and backslashes written out, so that each is one line."""
    return [_ESCAPED.sub(lambda found: f"\\{_SIGNS[found.group()]}", text) for text in texts]


def parsed(field: FormField, typed: str | bool | list[str]) -> Any:
    """What was typed as a JSON value: MISSING for an empty input that has a default, None for an empty nullable one.

    Text that is no number stays text, so that the contract refuses it in its own words.
    """
    if isinstance(typed, bool):
        return typed
    if isinstance(typed, list):
        return [_ESCAPE.sub(lambda found: _CHARACTERS[found.group(1)], item) for item in typed]
    text = typed.strip()
    if not text:
        return None if field.nullable else MISSING
    if field.widget == "integer":
        number = _number(text)
        return int(number) if number is not None and number == int(number) and abs(number) < 2**53 else _long(text)
    if field.widget == "number":
        number = _number(text)
        return text if number is None else number
    return text if field.widget == "choice" else typed


_SIGNS = {"\n": "n", "\r": "r", "\t": "t", "\\": "\\"}
_CHARACTERS = {sign: character for character, sign in _SIGNS.items()}
_ESCAPED = re.compile(r"[\n\r\t\\]")
_ESCAPE = re.compile(r"\\([nrt\\])")


def _number(text: str) -> float | None:
    cleaned = text.replace("\u202f", "").replace("\u2212", "-")
    try:
        number = float(cleaned)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _long(text: str) -> int | str:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 40 else text


# Documents


def at_path(document: Any, path: str) -> Any:
    """The value at a dotted path, MISSING where there is none."""
    for part in path.split("."):
        if isinstance(document, Mapping) and part in document:
            document = document[part]
        elif isinstance(document, (list, tuple)) and part.isdigit() and int(part) < len(document):
            document = document[int(part)]
        else:
            return MISSING
    return document


def put(document: dict[str, Any], path: str, value: Any) -> None:
    """Sets the value at a dotted path, making the sections on the way; list positions must exist."""
    *parents, last = path.split(".")
    place: Any = document
    for part in parents:
        place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
    place[last] = value


def flat(document: Any, prefix: str = "") -> dict[str, Any]:
    """Every leaf of a JSON document by its dotted path; empty lists and objects are leaves."""
    items: Any = None
    if isinstance(document, Mapping) and document:
        items = document.items()
    elif isinstance(document, (list, tuple)) and document:
        items = enumerate(document)
    if items is None:
        return {prefix: document}
    out: dict[str, Any] = {}
    for key, value in items:
        out |= flat(value, f"{prefix}.{key}" if prefix else str(key))
    return out
