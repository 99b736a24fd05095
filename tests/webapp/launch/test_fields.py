"""Inputs of the launch form and the values behind them."""

from __future__ import annotations

from typing import Any

import pytest

from webapp.launch.fields import MISSING, Choice, as_typed, at_path, flat, groups_of, parsed, put


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, True),
        (1e-05, "1e-05"),
        (3.0, "3"),
        (0.25, "0.25"),
        (["a"], ["a"]),
        ("x", "x"),
        (["\n\n", "a\\"], ["\\n\\n", "a\\\\"]),
    ],
)
def test_values_are_shown_as_people_write_them(value: Any, text: Any) -> None:
    assert as_typed(value) == text


@pytest.mark.parametrize(
    ("path", "typed", "value"),
    [
        ("budget.iterations", "1e3", 1000), ("budget.iterations", "12", 12), ("budget.iterations", "1.5", "1.5"),
        ("budget.iterations", "", MISSING), ("budget.sampled_tokens", " ", None), ("optimizer.learning_rate", "1e-4", 1e-4),
        ("optimizer.learning_rate", "nan", "nan"), ("optimizer.learning_rate", "−1", -1.0), ("seed", "9" * 30, int("9" * 30)),
    ],
)  # fmt: skip
def test_what_is_typed_becomes_a_value_or_stays_text(path: str, typed: str, value: Any) -> None:
    slots = {slot.path: slot for group in groups_of(Choice()) for slot in group.slots}
    assert parsed(slots[path].field, typed) == value


@pytest.mark.parametrize("stop", [[], ["</answer>"], ["\n\n", " x ", "\\n", "\t\\d"]])
def test_lines_of_texts_come_back_as_they_were(stop: list[str]) -> None:
    slots = {slot.path: slot for group in groups_of(Choice()) for slot in group.slots}
    field = slots["sampling.stop"].field
    assert field.widget == "lines"
    typed = as_typed(stop)
    assert not any(set(line) & set("\n\t") for line in typed)  # type: ignore[union-attr]
    assert parsed(field, typed) == stop


def test_paths_read_and_write_lists_and_sections() -> None:
    document: dict[str, Any] = {"methods": [{"slug": "sps"}]}
    put(document, "methods.0.params.alpha", 2)
    put(document, "a.b", 1)
    assert document == {"methods": [{"slug": "sps", "params": {"alpha": 2}}], "a": {"b": 1}}
    assert at_path(document, "methods.0.params.alpha") == 2
    assert at_path(document, "methods.1") is MISSING
    assert flat(document) == {"methods.0.slug": "sps", "methods.0.params.alpha": 2, "a.b": 1}
