"""Events survive JSON unchanged, and what does not add up never becomes one."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.contract import events as ev


def envelope(event: object) -> ev.Envelope:
    return ev.Envelope(run="r", attempt=1, seq=1, time=datetime(2026, 1, 1, tzinfo=UTC), monotonic=0.5, event=event)


STORABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)


@given(st.dictionaries(STORABLE, st.floats(), max_size=5))
def test_numbers_survive_json_with_their_kind_of_non_finite(values: dict[str, float]) -> None:
    event = ev.Scalars(axes=ev.Axes(iteration=3), **ev.pack_numbers(values))
    back = ev.parse_line(envelope(event).model_dump_json())
    assert back.event == event
    for key, value in values.items():
        if math.isfinite(value):
            assert back.event.values[key] == value
        else:
            assert back.event.values[key] is None
            assert back.event.nonfinite[key] == ("nan" if math.isnan(value) else "inf" if value > 0 else "-inf")


def test_a_bare_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        ev.Scalars(axes=ev.Axes(iteration=1), values={"loss": float("nan")})
    with pytest.raises(ValueError, match="flag"):
        ev.Scalars(axes=ev.Axes(iteration=1), values={"loss": None})


def test_counts_of_a_problem_must_add_up() -> None:
    ev.ProblemResult(uid="a", n=4, c=3, correct_forms=[2, 1])
    with pytest.raises(ValueError, match="correct forms"):
        ev.ProblemResult(uid="a", n=4, c=3, correct_forms=[2])
    with pytest.raises(ValueError, match="n=2"):
        ev.ProblemResult(uid="a", n=2, c=3, correct_forms=[3])


def line(event: str, **more: object) -> str:
    """A line with an event as it is on the wire."""
    return json.dumps({"run": "r", "attempt": 1, "seq": 1, "time": "2026-01-01T00:00:00Z", "monotonic": 0.5, **more})[
        :-1
    ] + (f', "event": {event}}}')


def test_nul_and_lone_surrogates_become_replacement_characters_and_nothing_else_changes() -> None:
    raw = r'{"kind": "log", "message": "a\u0000b \ud800 \ud83d\ude00 \\u0000"}'
    assert ev.parse_line(line(raw)).event.message == "a\ufffdb \ufffd \U0001f600 \\u0000"


def test_what_a_newer_trainer_sends_is_kept_closed() -> None:
    unknown = ev.parse_line(line('{"kind": "video", "axes": {"iteration": 4}, "uri": "x"}')).event
    assert (unknown.of, unknown.document["uri"]) == ("video", "x")
    assert unknown.reason == "this release knows no event of the kind 'video'"
    newer = ev.parse_line(line('{"kind": "log", "message": {"html": "x"}}', v=3, more=1))
    assert (newer.seq, newer.event.of) == (1, "log")
    assert "version 3" in newer.event.reason


@pytest.mark.parametrize(
    "event",
    [
        '{"kind": "scalars", "axes": {"iteration": 1}, "values": {"a": 1e400}}',
        '{"kind": "scalars", "axes": {"iteration": 1}, "values": {"a": NaN}}',
        '{"kind": "scalars", "axes": {"iteration": 1e400}, "values": {}}',
        '{"kind": "scalars", "axes": {"iteration": 2147483648}, "values": {}}',
        '{"kind": "scalars", "axes": {"iteration": 1, "rollouts": -1}, "values": {}}',
        '{"kind": "mark", "mark": "alert", "iteration": 1, "data": {"a": [1e400]}}',
        '{"kind": "histogram", "axes": {"iteration": 1}, "key": "k", "edges": [0, 1e400], "counts": [1]}',
        '{"kind": "histogram", "axes": {"iteration": 1}, "key": "k", "edges": [0, 1], "counts": [1, 2]}',
        '{"kind": "histogram", "axes": {"iteration": 1}, "key": "k", "edges": [1, 1], "counts": [1]}',
        '{"kind": "heatmap", "axes": {"iteration": 1}, "key": "k", "x": ["a"], "y": ["b"], "z": [[1, 2]]}',
        '{"kind": "scatter", "axes": {"iteration": 1}, "key": "k", "x": [1, 2], "y": [1]}',
        '{"kind": "table", "axes": {"iteration": 1}, "key": "k", "columns": ["a"], "rows": [[1, 2]]}',
        '{"kind": "table", "axes": {"iteration": 1}, "key": "k", "columns": ["a"], "rows": [['
        + "[" * 9999
        + "]" * 9999
        + "]]}",
        '{"kind": "log", "message": 1}',
    ],
    ids=lambda event: event[:60],
)
def test_what_cannot_be_stored_or_drawn_is_refused(event: str) -> None:
    with pytest.raises(ValueError):
        ev.parse_line(line(event))


@pytest.mark.parametrize("line", [b"{", b"{}", b'{"v":2}', b"[]"])
def test_a_broken_line_raises(line: bytes) -> None:
    with pytest.raises(ValueError):
        ev.parse_line(line)
