"""A JSON document as a tree to read."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Node:
    """A name with either children or plain values (none of them: it is not set)."""

    name: str
    children: tuple["Node", ...] = ()
    values: tuple[str, ...] = ()


def tree_of(document: dict[str, Any]) -> tuple[Node, ...]:
    """The document's entries in their order. Lists of plain values stay together; lists of objects are numbered."""
    return tuple(_node(name, value) for name, value in document.items())


def _node(name: str, value: Any) -> Node:
    if isinstance(value, dict):
        return Node(name, children=tree_of(value))
    if isinstance(value, list):
        if any(isinstance(item, dict | list) for item in value):
            return Node(name, children=tuple(_node(str(i), item) for i, item in enumerate(value, 1)))
        return Node(name, values=tuple(_text(item) for item in value))
    return Node(name, values=() if value is None else (_text(value),))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "—" if value is None else str(value)
