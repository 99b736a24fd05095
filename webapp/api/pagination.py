"""Pages of a list by cursor: nothing is skipped or repeated while rows are added, and nothing is counted."""

from dataclasses import dataclass
from typing import Any

from django.core import signing
from django.db.models import F, Q, QuerySet

from webapp.api.errors import Refused

DEFAULT_LIMIT, LARGEST_LIMIT = 50, 200


@dataclass(frozen=True)
class Page:
    """Rows, and the cursor of those that follow; None at the end."""

    rows: list[Any]
    next_cursor: str | None


def page_of(rows: QuerySet[Any], *, order: str, limit: int, cursor: str | None, address: str) -> Page:
    """The page after `cursor`, by the column `order` (with a minus: from the largest down) and then by key.

    Rows without a value come last. The cursor holds the last row's place; it is signed for the address and the order.
    Raises Refused for any other.
    """
    descending, column = order.startswith("-"), order.removeprefix("-")
    salt = f"webapp.api.cursor:{address}:{order}"
    if cursor is not None:
        try:
            value, key = signing.loads(cursor, salt=salt)
        except signing.BadSignature as error:
            raise Refused("invalid_cursor") from error
        rows = rows.filter(_after(column, "lt" if descending else "gt", value, key))
    by_value = F(column).desc(nulls_last=True) if descending else F(column).asc(nulls_last=True)
    found = list(rows.order_by(by_value, "-pk" if descending else "pk")[: limit + 1])
    kept = found[:limit]
    if len(found) <= limit:
        return Page(kept, None)
    last = kept[-1]
    value = getattr(last, column)
    place = [value.isoformat() if hasattr(value, "isoformat") else value, last.pk]
    return Page(kept, signing.dumps(place, salt=salt))


def _after(column: str, side: str, value: Any, key: Any) -> Q:
    """The rows that come after this place."""
    later = Q(**{f"pk__{side}": key})
    if column == "pk":
        return later
    if value is None:
        return Q(**{f"{column}__isnull": True}) & later
    beyond, same = Q(**{f"{column}__{side}": value}), Q(**{column: value})
    return beyond | (same & later) | Q(**{f"{column}__isnull": True})
