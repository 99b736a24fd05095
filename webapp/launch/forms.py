"""The launch form: what was typed, what the document is, and what is wrong with it, each at its input."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from django.http import QueryDict

from trainer.contract.config import InvalidConfig, Problem, migrated
from trainer.contract.presets import PRESETS, Preset
from trainer.core.registry import MethodSpec
from trainer.data.tasks import TASKS
from trainer.methods import all_methods
from webapp.core.templatetags.figures import grouped
from webapp.datasets.models import Version
from webapp.datasets.selectors import version_with_content, versions_for
from webapp.launch.about import AboutForm, new_about
from webapp.launch.bases import Base, bases_in, check_base
from webapp.launch.datasets import SETTINGS, problems_in
from webapp.launch.fields import (
    DATASET,
    KIND_TITLES,
    MISSING,
    SECRETS,
    Choice,
    Group,
    Slot,
    as_typed,
    at_path,
    groups_of,
    parsed,
    put,
)
from webapp.launch.secrets import problems_with_secrets
from webapp.launch.services import resolved, resolved_for
from webapp.projects.models import Project
from webapp.teams.selectors import secret_names

VERSIONS_SHOWN = 60
FRESH = "new"
"""Value of the base picker for a new architecture."""
Typed = str | bool | list[str]
Reader = Callable[[str, str], Any]
"""(name, path) -> what was typed for the input, or MISSING."""


@dataclass
class Input:
    """A slot with what is typed in it."""

    slot: Slot
    typed: Typed
    errors: list[str] = field(default_factory=list)

    @property
    def default(self) -> Typed:
        return as_typed(self.slot.default)

    @property
    def changed(self) -> bool:
        return self.typed != self.default and not (self.typed == "" and not self.slot.field.nullable)

    @property
    def default_text(self) -> str:
        """The default as a sentence's end: "on", "none", "0.2"."""
        value = self.default
        if isinstance(value, bool):
            return "on" if value else "off"
        if isinstance(value, list):
            return ", ".join(value) or "none"
        return value or "none"

    @property
    def default_data(self) -> str:
        """The default as the page's script compares it with the input's value."""
        value = self.default
        if isinstance(value, bool):
            return "true" if value else "false"
        return self._lines(value)

    @property
    def lines(self) -> str:
        """What is typed, as one text."""
        return self._lines(self.typed)

    @staticmethod
    def _lines(value: Any) -> str:
        return "\n".join(value) if isinstance(value, list) else str(value)

    @property
    def words(self) -> str:
        """What the search in the form looks through."""
        f = self.slot.field
        return f"{f.title} {f.help} {self.slot.path}".lower()

    @property
    def range_text(self) -> str:
        lo, hi = self.slot.field.minimum, self.slot.field.maximum
        if lo is not None and hi is not None:
            return f"{_limit(lo)} to {_limit(hi)}"
        if lo is not None:
            return f"from {_limit(lo)}"
        return f"up to {_limit(hi)}" if hi is not None else ""


@dataclass(frozen=True)
class Fold:
    """Inputs that are folded away under a heading, unless one of them differs or is wrong."""

    title: str
    inputs: list[Input]

    @property
    def unfold(self) -> bool:
        return any(one.changed or one.errors for one in self.inputs)


@dataclass
class InputGroup:
    """A group with its inputs; advanced ones are folded."""

    group: Group
    inputs: list[Input]

    @property
    def plain(self) -> list[Input]:
        return [one for one in self.inputs if not one.slot.field.advanced]

    @property
    def folds(self) -> list[Fold]:
        """The advanced inputs by heading, in the order in which headings come."""
        found: dict[str, list[Input]] = {}
        for one in self.inputs:
            if one.slot.field.advanced:
                found.setdefault(one.slot.field.part or "Advanced", []).append(one)
        return [Fold(title, inputs) for title, inputs in found.items()]


@dataclass(frozen=True)
class Complaint:
    """A problem for the summary: which input it belongs to (its id, or that of its part of the form), and the text."""

    target: str
    title: str
    text: str


class LaunchForm:
    """One project's form. Made by `from_post`, `from_document` or `empty`; nothing typed is lost on the way."""

    def __init__(self, project: Project, choice: Choice, base: str, read: Reader, about: AboutForm) -> None:
        self.project = project
        self.asked = choice
        self.choice = choice.known()
        self.base = base
        self.about = about
        self.problems: list[Problem] = []
        self.left_out: list[Problem] = []
        self.document_problems: list[Problem] = []
        self.groups = [
            InputGroup(group, [self._input(self._sized(slot), read) for slot in group.slots])
            for group in groups_of(self.choice, secrets=_offered(project, read(SECRETS, SECRETS)))
        ]

    def _sized(self, slot: Slot) -> Slot:
        """A slot that asks for no more problems by default than the dataset version has."""
        split = next((split for split, path in SETTINGS.items() if path == slot.path), None)
        if self.version is None or split is None:
            return slot
        return replace(slot, default=min(slot.default, problems_in(self.version)[split]))

    @staticmethod
    def _input(slot: Slot, read: Reader) -> Input:
        typed = read(slot.name, slot.path)
        if typed is MISSING:
            typed = as_typed(slot.default)
        elif isinstance(typed, list) and slot.field.widget not in ("multichoice", "lines"):
            typed = json.dumps(typed)
        return Input(slot, typed)

    @classmethod
    def empty(
        cls, project: Project, *, base: str = "", methods: tuple[str, ...] = (), version: int | None = None
    ) -> "LaunchForm":
        """All defaults, from the given base (a URI) or the first that is offered, on the given dataset version."""
        bases = bases_in(project)
        chosen = base or (bases[0].uri if bases else "")
        choice = Choice(methods=methods) if chosen else Choice(kind="sft", fresh=True)
        if version is not None:
            choice = replace(choice, task=DATASET, version=version)
        return cls(project, choice, chosen or FRESH, lambda name, path: MISSING, new_about())

    @classmethod
    def from_document(cls, project: Project, document: Any, *, about: AboutForm | None = None) -> "LaunchForm":
        """Filled from a launch document or a run's configuration. Settings that no input takes stand in `left_out`,
        other problems without an input in `document_problems`.
        """
        wanted = current_form(document)
        policy, chosen = wanted.get("policy"), wanted.get("methods")
        policy = policy if isinstance(policy, dict) else {}
        chosen = chosen if isinstance(chosen, list) else []
        fresh = bool(policy.get("architecture"))
        choice = Choice(
            kind=str(wanted.get("kind", "rl")),
            task=str(_text_at(wanted, "task.name", "countdown")),
            preset=str(_text_at(wanted, "algorithm.preset", "grpo")),
            methods=tuple(str(one["slug"]) for one in chosen if isinstance(one, dict) and "slug" in one),
            fresh=fresh,
            version=_version_in(project, wanted),
        )

        def read(name: str, path: str) -> Any:
            value = at_path(wanted, path)
            if isinstance(value, dict):  # refused by the contract, and shown as it was given
                return json.dumps(value)
            return value if value is MISSING else as_typed(value)

        form = cls(project, choice, FRESH if fresh else str(policy.get("checkpoint") or ""), read, about or new_about())
        for problem in _problems(document):
            if problem.message.startswith("unknown setting"):
                form.left_out.append(problem)
            elif form.find(problem.path) is None:
                form.document_problems.append(problem)
        return form

    @classmethod
    def from_post(cls, project: Project, data: QueryDict) -> "LaunchForm":
        """What was typed. Inputs that still show the default of the previous choice take the new choice's default."""
        choice = _choice(data, "")
        before = _choice(data, "was.").known()
        stale: dict[str, Typed] = {}
        if choice.known() != before and "was.kind" in data:
            stale = {slot.name: as_typed(slot.default) for group in groups_of(before) for slot in group.slots}
        slots = {slot.name: slot for group in groups_of(choice.known()) for slot in group.slots}

        def read(name: str, path: str) -> Any:
            if name not in data:
                return MISSING
            if name == SECRETS:
                return [chosen for chosen in data.getlist(name) if chosen]
            typed = _typed(slots[name], data)
            return MISSING if name in stale and stale[name] == typed else typed

        return cls(project, choice, data.get("policy.source", ""), read, AboutForm(data))

    # The document

    def document(self) -> dict[str, Any]:
        """The launch document of what is typed, valid or not."""
        c = self.choice
        out: dict[str, Any] = {"kind": self.asked.kind, "policy": {}, "task": {"name": self.asked.task, "params": {}}}
        if c.kind == "rl":
            out["algorithm"] = {"preset": self.asked.preset}
            unknown = [slug for slug in self.asked.methods if slug not in c.methods]
            out["methods"] = [{"slug": slug, "params": {}} for slug in (*c.methods, *unknown)]
        if not c.fresh:
            out["policy"]["checkpoint"] = self.base or None
        for one in self.inputs:
            value = parsed(one.slot.field, one.typed)
            if value is not MISSING:
                put(out, one.slot.path, value)
        if self.version is not None:
            known = {"uri": self.version.uri, "content_hash": self.version.content_hash, "sha256": self.version.sha256}
            out["task"]["params"] |= known
        return out

    @cached_property
    def version(self) -> Version | None:
        """The chosen dataset version, where it is one of the project's."""
        if self.choice.version is None:
            return None
        rows = Version.objects.filter(dataset__project=self.project, pk=self.choice.version)
        return rows.select_related("dataset").first()

    @cached_property
    def config(self) -> dict[str, Any] | None:
        """The resolved configuration; None when something is wrong, which then stands at the inputs and in `problems`."""
        problems = check_base(self.project, self.base) if not self.choice.fresh else []
        config = None
        try:
            config, _version = resolved_for(self.project, self.document())
        except InvalidConfig as error:
            known = {p.path for p in problems}
            problems += [p for p in error.problems if p.path not in known and not (known and p.path == "policy")]
        else:
            problems += problems_with_secrets(self.project.team, config)
        self.add_problems(problems)
        return None if problems else config

    def add_problems(self, problems: list[Problem]) -> None:
        """Puts each problem at its input."""
        self.problems += problems
        for problem in problems:
            one = self.find(problem.path)
            if one is not None:
                one.errors.append(problem.message)

    def find(self, path: str) -> Input | None:
        """The input of a dotted path, or of the longest part of it that has one."""
        by_path = {one.slot.path: one for one in self.inputs}
        while path:
            if path in by_path:
                return by_path[path]
            path = path.rpartition(".")[0]
        return None

    # For the template

    @property
    def inputs(self) -> list[Input]:
        return [one for group in self.groups for one in group.inputs]

    @cached_property
    def by_key(self) -> dict[str, InputGroup]:
        return {group.group.key: group for group in self.groups}

    @property
    def method_groups(self) -> list[tuple[MethodSpec, InputGroup]]:
        return [(spec, self.by_key[f"method:{spec.slug}"]) for spec in self.choice.method_specs]

    @cached_property
    def bases(self) -> list[Base]:
        return bases_in(self.project, chosen=self.base)

    @property
    def may_be_fresh(self) -> bool:
        return self.choice.kind == "sft" or self.choice.fresh or not self.bases

    @property
    def kinds(self) -> list[tuple[str, str, str]]:
        return [(kind, title, text) for kind, (title, text) in KIND_TITLES.items()]

    @property
    def tasks(self) -> list[Any]:
        return list(TASKS.values())

    @cached_property
    def versions(self) -> list[Version]:
        """What is offered, the chosen one among it."""
        offered = list(versions_for(self.project)[:VERSIONS_SHOWN])
        chosen = self.version
        return offered if chosen is None or chosen in offered else [chosen, *offered]

    @property
    def presets(self) -> list[Preset]:
        return list(PRESETS.values())

    @property
    def methods(self) -> list[MethodSpec]:
        return list(all_methods().values())

    def errors_at(self, *prefixes: str) -> list[str]:
        """Problems of a picker: at one of these paths, and at no input."""
        return [
            p.message
            for p in self.problems
            if self.find(p.path) is None and any(re.fullmatch(prefix, p.path) for prefix in prefixes)
        ]

    @property
    def kind_errors(self) -> list[str]:
        return self.errors_at("kind")

    @property
    def base_errors(self) -> list[str]:
        return self.errors_at("policy", r"policy\.checkpoint", r"policy\.architecture")

    @property
    def task_errors(self) -> list[str]:
        return self.errors_at(r"task\.name", r"task\.params(\.(uri|content_hash|sha256))?", "task")

    @property
    def preset_errors(self) -> list[str]:
        return self.errors_at(r"algorithm\.preset", "algorithm")

    @property
    def method_errors(self) -> list[str]:
        return self.errors_at(r"methods(\.\d+(\.slug|\.params)?)?")

    @property
    def complaints(self) -> list[Complaint]:
        """Everything wrong, for the summary."""
        out = []
        for problem in self.problems:
            one = self.find(problem.path)
            title = (
                one.slot.field.title if one else _PARTS.get(problem.path.split(".")[0], ("part-run", problem.path))[1]
            )
            target = one.slot.id if one else _PARTS.get(problem.path.split(".")[0], ("part-run", ""))[0]
            out.append(Complaint(target, title, problem.message))
        if self.about.is_bound and not self.about.is_valid():
            for name, errors in self.about.errors.items():
                label = self.about.fields[name].label or "Form"
                out += [Complaint(f"id_{name}", str(label), str(text)) for text in errors]
        return out


def _offered(project: Project, typed: Any) -> list[str]:
    """The team's secrets, and those that a document names without the team having them: they are shown, and refused."""
    named = typed if isinstance(typed, list) else []
    return list(dict.fromkeys([*secret_names(project.team), *named]))


_PARTS = {
    "kind": ("part-kind", "Kind"),
    "policy": ("part-base", "Base"),
    "task": ("part-task", "Task"),
    "algorithm": ("part-method", "Base algorithm"),
    "methods": ("part-method", "Methods"),
}


def _limit(number: float) -> str:
    return grouped(int(number)) if number == int(number) else str(number)


def _text_at(document: Mapping[str, Any], path: str, otherwise: str) -> Any:
    value = at_path(document, path)
    return otherwise if value is MISSING else value


def _version_in(project: Project, document: Mapping[str, Any]) -> int | None:
    found = at_path(document, "task.params.content_hash")
    version = version_with_content(project, found) if isinstance(found, str) and found else None
    return version.pk if version else None


def current_form(document: Any) -> dict[str, Any]:
    """The document in this release's form. One that cannot be brought into it stays as it is: `resolved` says why."""
    try:
        return migrated(document)
    except InvalidConfig:
        return document if isinstance(document, dict) else {}


def _problems(document: Any) -> list[Problem]:
    try:
        resolved(document)
    except InvalidConfig as error:
        return error.problems
    return []


def _choice(data: QueryDict, prefix: str) -> Choice:
    kind = data.get(f"{prefix}kind", "rl")
    return Choice(
        kind=kind,
        task=data.get(f"{prefix}task.name", "countdown"),
        preset=data.get(f"{prefix}algorithm.preset", "grpo"),
        methods=tuple(data.getlist(f"{prefix}methods")) if kind == "rl" else (),
        fresh=data.get(f"{prefix}policy.source") == FRESH,
        version=int(version) if (version := data.get(f"{prefix}dataset.version", "")[:15]).isdecimal() else None,
    )


def _typed(slot: Slot, data: QueryDict) -> Typed:
    if slot.field.widget == "checkbox":
        # A hidden "false" stands before the box, so that an empty box is told from an absent one.
        return data.getlist(slot.name)[-1] == "true"
    if slot.field.widget == "multichoice":
        chosen: list[str] = [str(value) for value in data.getlist(slot.name) if value]
        return chosen
    if slot.field.widget == "lines":
        return [line for line in str(data[slot.name]).replace("\r", "").split("\n") if line]
    return str(data[slot.name])
