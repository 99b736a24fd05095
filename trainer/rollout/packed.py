"""Groups in JSON form, for the state of a run: batches that wait, buffers of earlier rollouts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from trainer.core.types import Group

_GROUPS = TypeAdapter(list[Group])


def packed(groups: Sequence[Group]) -> list[Any]:
    """One JSON value a group, equal for equal groups."""
    found: list[Any] = json.loads(json.dumps(_GROUPS.dump_python(list(groups))))
    return found


def unpacked(values: Sequence[Any]) -> list[Group]:
    """The groups again."""
    return _GROUPS.validate_python(list(values))
