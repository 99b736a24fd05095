"""A page that was told something twice, or not at all, says so: each way falsified once."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.storm.reader import Page

LINES = [{"kind": "log", "message": text, "attempt": 1} for text in ("one", "two", "three")]
MESSAGES: list[dict[str, Any]] = [
    {"cursor": 2, "run": {"state": "running"}, "logs": LINES[:2], "evaluations": [{"id": 1, "iteration": 0}]},
    {
        "cursor": 3, "run": {"state": "running"}, "series": [{"key": "reward", "iteration": [1, 2], "y": [0.1, 0.2]}],
        "drawn": [{"kind": "histogram", "key": "lengths", "iteration": 2}], "evaluations": [{"id": 2, "iteration": 2}],
    },
    # A second attempt repeats iteration 2.
    {"cursor": 5, "run": {"state": "running"}, "rewind": 1, "logs": LINES[2:]},
    {
        "cursor": 6, "run": {"state": "finished"}, "series": [{"key": "reward", "iteration": [2], "y": [0.3]}],
        "drawn": [{"kind": "histogram", "key": "lengths", "iteration": 2}], "evaluations": [{"id": 3, "iteration": 2}],
    },
]  # fmt: skip
STORED: dict[str, Any] = {
    "cursor": 6, "state": "finished", "lines": [json.dumps(line, sort_keys=True) for line in LINES], "hidden_lines": [],
    "points": {"reward": {"1": 0.1, "2": 0.3}}, "pictures": [["histogram", "lengths", 2]], "evaluations": [1, 3],
}  # fmt: skip


def missed(messages: list[dict[str, Any]], stored: dict[str, Any] = STORED) -> list[str]:
    page = Page()
    for message in messages:
        page.take(message)
    return page.missed(stored)


def test_a_page_that_was_told_everything_once_misses_nothing() -> None:
    assert missed(MESSAGES) == []


Change = Callable[[list[dict[str, Any]]], Any]
FALSE: dict[str, tuple[Change, str]] = {
    "a message twice": (lambda all: all.insert(1, all[0]), "live number 2 follows 2"),
    "a line twice": (lambda all: all[2]["logs"].append(LINES[0]), "told 2 times, expected 1"),
    "a line never": (lambda all: all[0]["logs"].pop(), "told 0 times, expected 1"),
    "a line that is not stored": (lambda all: all[0]["logs"].append({"message": "?"}), "stored 0 times and hidden"),
    "a point twice": (lambda all: all[1]["series"].append(all[1]["series"][0]), "reward of iteration 1 was told twice"),
    "a point never": (lambda all: all[3].pop("series"), "points of 1 series differ"),
    "no rewind": (lambda all: all[2].pop("rewind"), "reward of iteration 2 was told twice"),
    "a picture never": (lambda all: all[3].pop("drawn"), "pictures: 0 told, 1 stored"),
    "an evaluation twice": (
        lambda all: all[1]["evaluations"].append({"id": 1, "iteration": 0}),
        "evaluation 1 was told",
    ),
    "an evaluation never": (lambda all: all[3].pop("evaluations"), "evaluations told [1], stored [1, 3]"),
    "not the end": (lambda all: all.pop(), "it ends running at 5, stored is finished at 6"),
}


@pytest.mark.parametrize("name", FALSE)
def test_a_page_that_was_told_otherwise_says_so(name: str) -> None:
    change, text = FALSE[name]
    messages = copy.deepcopy(MESSAGES)
    change(messages)
    assert any(text in one for one in missed(messages)), missed(messages)


def test_a_hidden_line_may_have_been_told_once() -> None:
    hidden = {**STORED, "lines": STORED["lines"][1:], "hidden_lines": STORED["lines"][:1]}
    assert missed(MESSAGES, hidden) == []
