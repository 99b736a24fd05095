"""A pydantic model as the description of a form, so that pages render exactly what validates."""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from trainer.contract.config import section_of

Widget = Literal["integer", "number", "text", "checkbox", "choice", "multichoice", "lines"]


@dataclass(frozen=True)
class FormField:
    """One input. ``path`` is dotted; ``nullable`` means that empty is a value of its own (no limit, off);
    ``part`` is the heading under which an advanced one is folded. Of ``lines``, each line is one text or number."""

    path: str
    title: str
    help: str
    widget: Widget
    default: Any
    unit: str = ""
    advanced: bool = False
    part: str = ""
    nullable: bool = False
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None


def fields_of(model: type[BaseModel], *, prefix: str = "", skip: frozenset[str] = frozenset()) -> list[FormField]:
    """The inputs of a model's plain fields, in order; nested sections and mappings are left to the caller."""
    out = []
    for name, info in model.model_fields.items():
        if name in skip or section_of(info) is not None or _is_mapping(info):
            continue
        out.append(_field(f"{prefix}{name}", name, info))
    return out


def _is_mapping(info: FieldInfo) -> bool:
    return get_origin(info.annotation) in (dict,)


def _field(path: str, name: str, info: FieldInfo) -> FormField:
    annotation, nullable = _strip_none(info.annotation)
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    lo, hi = _limits(info)
    widget, choices = _widget(annotation)
    default = None if info.default is PydanticUndefined else info.default
    return FormField(
        path=path,
        title=info.title or name.replace("_", " "),
        help=info.description or "",
        widget=widget,
        default=list(default) if isinstance(default, tuple) else default,
        unit=str(extra.get("unit", "")),
        advanced=bool(extra.get("advanced", False)),
        part=str(extra.get("part", "")),
        nullable=nullable,
        choices=choices,
        minimum=lo,
        maximum=hi,
    )


def _strip_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [a for a in get_args(annotation) if a is not type(None)]
        return (rest[0] if rest else str), len(rest) < len(get_args(annotation))
    return annotation, False


def _widget(annotation: Any) -> tuple[Widget, tuple[str, ...]]:
    if get_origin(annotation) is Literal:
        return "choice", tuple(str(a) for a in get_args(annotation))
    if get_origin(annotation) in (tuple, list, frozenset, set):
        inner = get_args(annotation)[0]
        if get_origin(inner) is Literal:
            return "multichoice", tuple(str(a) for a in get_args(inner))
        if _is_plain(inner):
            return "lines", ()
    if annotation is bool:
        return "checkbox", ()
    if annotation is int:
        return "integer", ()
    if annotation is float:
        return "number", ()
    return "text", ()


def _is_plain(annotation: Any) -> bool:
    bare = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return bare in (str, float)


def _limits(info: FieldInfo) -> tuple[float | None, float | None]:
    lo: float | None = None
    hi: float | None = None
    for rule in info.metadata:
        for name in ("ge", "gt"):
            lo = getattr(rule, name, None) if getattr(rule, name, None) is not None else lo
        for name in ("le", "lt"):
            hi = getattr(rule, name, None) if getattr(rule, name, None) is not None else hi
    return lo, hi
