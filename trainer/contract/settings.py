"""A setting: one field of a section, with what a launch form needs to know about it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue


def setting(
    default: Any, title: str, help: str, *, unit: str = "", advanced: bool = False, part: str = "", **limits: Any
) -> Any:
    """A config field with what a launch form needs: title, help text, unit, whether it is folded away, and under which
    heading then."""
    extra: dict[str, JsonValue] = {"unit": unit, "advanced": advanced, **({"part": part} if part else {})}
    return Field(default, title=title, description=help, json_schema_extra=extra, **limits)


class Section(BaseModel):
    """Base of every part of the document: unknown keys are errors, values are frozen, NaN is no setting."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
