"""Numbers and times as pages show them. THIN is the narrow no-break space."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from django.template import Context, Template
from django.test import RequestFactory
from hypothesis import given
from hypothesis import strategies as st

from webapp.core.templatetags import figures
from webapp.core.templatetags.figures import THIN, ago, duration, figure, interval, percent, relative, significant


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0.0, "0"),
        (0.12345, "0.123"),
        (1.0, "1.00"),
        (9.996, "10.0"),
        (0.9996, "1.00"),
        (12.345, "12.3"),
        (99.96, "100"),
        (123.4, "123"),
        (999.6, f"1{THIN}000"),
        (12345.0, f"12{THIN}300"),
        (-0.5, "−0.500"),
        (0.000123, "0.000123"),
        (0.0000123, "1.23×10⁻⁵"),
        (-4.5e12, "−4.50×10¹²"),
    ],
)
def test_three_significant_digits(number: float, shown: str) -> None:
    assert significant(number) == shown


@given(st.floats(min_value=1e-12, max_value=1e12))
def test_what_is_shown_is_within_half_a_unit_of_the_third_digit(number: float) -> None:
    shown = significant(number).replace(THIN, "")
    if "×" in shown:
        digits, exponent = shown.split("×10")
        value = float(digits) * 10.0 ** int(exponent.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")))
    else:
        value = float(shown)
    assert abs(value - number) <= 0.0051 * number


def test_counts_are_exact_with_thin_spaces() -> None:
    assert figure(1234567) == f"1{THIN}234{THIN}567"
    assert figure(-1000) == f"−1{THIN}000"


def test_an_undefined_value_is_a_dash_with_its_reason() -> None:
    assert figure(None, "no <b>reward</b>") == ('<span class="undefined" title="no &lt;b&gt;reward&lt;/b&gt;">—</span>')


@pytest.mark.parametrize(("value", "shown"), [(math.nan, "NaN"), (math.inf, "∞"), (-math.inf, "−∞")])
def test_values_that_are_not_finite_are_shown_as_such(value: float, shown: str) -> None:
    assert f">{shown}<" in figure(value)
    assert f">{shown}<" in percent(value)


def test_percent() -> None:
    assert percent(0.1234) == f"12.3{THIN}%"


def test_interval_has_its_note_on_hover() -> None:
    assert interval(0.35, 0.31, 0.39, note="95 %, n = 200") == (
        '0.350 <span class="interval" title="95 %, n = 200">[0.310, 0.390]</span>'
    )
    assert "[" not in interval(0.35, None, None)
    assert "—" in interval(None, None, None, reason="k is above n")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (0.02, "20 ms"),
        (45, "45 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (273600, "3 d 4 h"),
        (3600, "1 h"),
    ],
)
def test_duration(seconds: float, shown: str) -> None:
    words = shown.split(" ")
    paired = " ".join(THIN.join(words[start : start + 2]) for start in range(0, len(words), 2))
    assert duration(seconds) == paired
    assert duration(timedelta(seconds=seconds)) == paired


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "now"), (30, f"30{THIN}s ago"), (200, f"3{THIN}min ago"), (90000, f"1{THIN}d ago"), (-200, f"in 3{THIN}min")],
)
def test_relative_time(seconds: float, shown: str) -> None:
    assert relative(seconds) == shown


def test_a_time_has_the_absolute_one_on_hover(settings) -> None:
    shown = ago(datetime(2026, 1, 2, 10, 0, 5, tzinfo=UTC))
    assert 'datetime="2026-01-02T10:00:05+00:00"' in shown
    assert 'title="2026-01-02 10:00:05 UTC"' in shown
    assert "—" in ago(None)


def test_a_state_has_a_shape_and_a_word() -> None:
    shown = figures.state("failed")
    assert "#cross" in shown
    assert "Failed" in shown


def test_every_state_has_its_icon_in_the_sprite(settings) -> None:
    sprite = (settings.BASE_DIR / "static" / "icons.svg").read_text()
    assert all(f'id="{shape}"' in sprite for shape, _tone in figures.STATES.values())


def test_query_with_keeps_the_other_parameters() -> None:
    request = RequestFactory().get("/?q=sps&page=3&tag=a&tag=b")
    shown = Template("{% query_with page=4 q=none %}").render(Context({"request": request, "none": None}))
    assert shown == "?page=4&amp;tag=a&amp;tag=b"


@pytest.mark.parametrize("value", ["ba5c0c1234", "files-ba5c0c1234", "adapter-ba5c0c12"])
def test_a_short_hash_has_digits_whatever_its_kind(value: str) -> None:
    assert figures.short_hash(value) == "ba5c0c12"
