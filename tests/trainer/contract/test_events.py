"""Events survive JSON unchanged, and what does not add up never becomes one."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.contract import events as ev


def envelope(event: object) -> ev.Envelope:
    return ev.Envelope(run="r", attempt=1, seq=1, time=datetime(2026, 1, 1, tzinfo=UTC), monotonic=0.5, event=event)


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.floats(), max_size=5))
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


@pytest.mark.parametrize("line", [b"{", b"{}", b'{"v":2}', b"[]"])
def test_a_broken_line_raises(line: bytes) -> None:
    with pytest.raises(ValueError):
        ev.parse_line(line)
