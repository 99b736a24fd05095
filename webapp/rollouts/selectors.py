"""Reads of rollouts: which iterations and prompts there are, and the rows of one group."""

import math
from typing import Any

from django.db.models import Avg, Count, QuerySet, Sum
from django.shortcuts import get_object_or_404

from webapp.rollouts.models import RolloutGroup
from webapp.runs.copies import local_copy
from webapp.runs.models import Run


class PartMissing(Exception):
    """The file of a part is not in the storage (yet), or cannot be read."""


def groups_of(run: Run) -> QuerySet[RolloutGroup]:
    """All groups that still count."""
    return RolloutGroup.objects.filter(run=run, part__retired=False).select_related("part")


def iterations_of(run: Run) -> list[int]:
    """Iterations with rollouts, ascending."""
    return list(
        run.rollout_parts.filter(retired=False).order_by("iteration").values_list("iteration", flat=True).distinct()
    )


def groups_at(run: Run, iteration: int) -> QuerySet[RolloutGroup]:
    """The prompts of an iteration, in the order of the file."""
    return groups_of(run).filter(iteration=iteration).order_by("part", "first_row")


def prompts_of(run: Run, *, search: str = "") -> list[dict[str, Any]]:
    """Every prompt over all iterations: uid, text, answer, times (groups), rollouts, correct, reward (mean)."""
    rows = groups_of(run)
    if search:
        rows = rows.filter(text__icontains=search)
    counted = rows.values("uid", "text", "answer").annotate(
        times=Count("pk"), rollouts=Sum("n"), correct=Sum("c"), reward=Avg("mean_reward")
    )
    return [dict(row) for row in counted.order_by("uid")]


def history_of(run: Run, uid: str) -> QuerySet[RolloutGroup]:
    """All groups of one prompt, by iteration."""
    return groups_of(run).filter(uid=uid).order_by("iteration", "pk")


def group_in(run: Run, group_id: int) -> RolloutGroup:
    """The group of that run; Http404 for any other."""
    return get_object_or_404(groups_of(run), pk=group_id)


def rows_of(group: RolloutGroup) -> list[dict[str, Any]]:
    """The group's rollouts as the trainer wrote them: one dictionary a rollout, keys are the file's columns.

    Non-finite numbers become the strings "nan", "inf", "-inf". Raises PartMissing.
    """
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    try:
        with pq.ParquetFile(local_copy(group.part.uri)) as file:
            chosen, before = _row_groups(file.metadata, group.first_row, group.first_row + group.n)
            table = file.read_row_groups(chosen)
    except (OSError, ArrowException) as error:
        raise PartMissing(f"{group.part.uri} cannot be read: {error}") from error
    rows = table.slice(group.first_row - before, group.n).to_pylist()
    if len(rows) != group.n:
        raise PartMissing(f"{group.part.uri} ends before row {group.first_row + group.n}; the file was cut short")
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def _row_groups(metadata: Any, begin: int, end: int) -> tuple[list[int], int]:
    """The file's row groups that hold rows `begin` to `end - 1`, and how many rows lie before the first of them."""
    chosen: list[int] = []
    before = position = 0
    for number in range(metadata.num_row_groups):
        after = position + metadata.row_group(number).num_rows
        if position < end and after > begin:
            if not chosen:
                before = position
            chosen.append(number)
        position = after
    return chosen, before


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value
