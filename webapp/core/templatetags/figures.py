"""Numbers, times and icons as every page shows them. Built in: no template needs to load it.

Numbers have three significant digits; a value that is undefined is a dash with the reason on hover; NaN and
infinities are shown as what they are. Each filter takes any number, None, or a string that it passes through.
"""

import math
from datetime import datetime, timedelta
from typing import Any

from django import template
from django.http import HttpRequest
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()

THIN = "\u202f"  # narrow no-break space
MINUS = "\u2212"
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
UNDEFINED_REASON = "Not defined here"


def grouped(number: int) -> str:
    """1234567 -> 1 234 567 with thin spaces."""
    return f"{number:,}".replace(",", THIN).replace("-", MINUS)


def significant(number: float, digits: int = 3) -> str:
    """A finite number with that many significant digits: 0.0123, 12.3, 1 230, 1.23×10⁻⁵."""
    if number == 0:
        return "0"
    exponent = math.floor(math.log10(abs(number)))
    # Rounding may carry into the next decade: 9.996 has the digits of 10.0.
    if abs(round(number, digits - 1 - exponent)) >= 10 ** (exponent + 1):
        exponent += 1
    if exponent < -4 or exponent >= 9:
        shown = f"{number / 10**exponent:.{digits - 1}f}×10{str(exponent).translate(SUPERSCRIPT)}"
    elif exponent >= digits - 1:
        return grouped(int(round(number, digits - 1 - exponent)))
    else:
        shown = f"{number:.{digits - 1 - exponent}f}"
    return shown.replace("-", MINUS)


def undefined(reason: str = UNDEFINED_REASON) -> SafeString:
    return format_html('<span class="undefined" title="{}">—</span>', reason or UNDEFINED_REASON)


@register.filter
def figure(value: Any, reason: str = UNDEFINED_REASON) -> str:
    """`{{ value|figure:"no validation yet" }}`: the number, or a dash with the reason."""
    if value is None or value == "":
        return undefined(reason)
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return grouped(value)
    number = float(value)
    if math.isnan(number):
        return format_html(
            '<span class="nonfinite" title="The trainer logged a value that is not a number">{}</span>', "NaN"
        )
    if math.isinf(number):
        sign = "" if number > 0 else MINUS
        return format_html('<span class="nonfinite" title="The trainer logged an infinite value">{}∞</span>', sign)
    return significant(number)


@register.filter
def percent(value: Any, reason: str = UNDEFINED_REASON) -> str:
    """0.1234 -> 12.3 %."""
    if value is None or value == "" or not math.isfinite(value):
        return figure(value, reason)
    return f"{significant(100 * value)}{THIN}%"


@register.simple_tag
def interval(value: float | None, low: float | None, high: float | None, note: str = "", reason: str = "") -> str:
    """`{% interval .35 .31 .39 note="95 %, n = 200 problems" %}` -> 0.350 [0.310, 0.390], with the note on hover."""
    if value is None or not math.isfinite(value):
        return figure(value, reason)
    if low is None or high is None:
        return format_html('<span title="{}">{}</span>', reason or note, figure(value))
    return format_html(
        '{} <span class="interval" title="{}">[{}, {}]</span>', figure(value), note, figure(low), figure(high)
    )


@register.filter
def duration(value: Any, reason: str = UNDEFINED_REASON) -> str:
    """Seconds or a timedelta with its two largest units: 45 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if value is None or value == "":
        return undefined(reason)
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if not math.isfinite(seconds):
        return undefined(reason)
    if 0 < seconds < 1:
        return f"{max(1, round(seconds * 1000))}{THIN}ms"
    whole = max(0, round(seconds))
    for unit, size, lower, lower_size in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // lower_size
            return f"{whole // size}{THIN}{unit}" + (f" {rest}{THIN}{lower}" if rest else "")
    return f"{whole}{THIN}s"


@register.filter
def short_hash(value: str) -> str:
    """Enough of a hash to tell it from others: eight digits, whatever kind of hash stands before them."""
    return value.rpartition("-")[2][:8]


@register.filter
def ago(value: datetime | None, reason: str = "Not yet") -> str:
    """A `<time>` that reads "3 min ago" with the absolute time on hover; the page keeps it current."""
    if value is None:
        return undefined(reason)
    local = timezone.localtime(value)
    seconds = (timezone.now() - value).total_seconds()
    absolute = f"{local:%Y-%m-%d %H:%M:%S} {local.tzname()}"
    return format_html(
        '<time datetime="{}" title="{}" data-ago>{}</time>', value.isoformat(), absolute, relative(seconds)
    )


def relative(seconds: float) -> str:
    """How long ago, in the one largest unit; `static/js/app.js` does the same."""
    distance = abs(seconds)
    if distance < 5:
        return "now"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if distance >= size:
            shown = f"{int(distance // size)}{THIN}{unit}"
            break
    return f"{shown} ago" if seconds > 0 else f"in {shown}"


@register.simple_tag
def icon(name: str, label: str = "") -> str:
    """A symbol of `static/icons.svg`; without a label it is hidden from screen readers."""
    source = f"{static('icons.svg')}#{name}"
    if label:
        return format_html('<svg class="icon" role="img" aria-label="{}"><use href="{}"></use></svg>', label, source)
    return format_html('<svg class="icon" aria-hidden="true"><use href="{}"></use></svg>', source)


# State -> (icon, tone): the shape tells as much as the colour.
STATES = {
    "queued": ("ring", ""),
    "starting": ("clock", "accent"),
    "running": ("play", "accent"),
    "stopping": ("pause", "warn"),
    "finished": ("check", "good"),
    "cancelled": ("stop", ""),
    "failed": ("cross", "bad"),
    "lost": ("question", "warn"),
}


@register.simple_tag
def state(name: str, label: str = "", detail: str = "") -> str:
    """`{% state run.state run.get_state_display %}`: a pill with shape and word; `detail` shows on hover."""
    shape, tone = STATES.get(name, ("ring", ""))
    return format_html(
        '<span class="state" data-state="{}" data-tone="{}" title="{}">{}{}</span>',
        name,
        tone,
        detail,
        icon(shape),
        label or name.capitalize(),
    )


@register.simple_tag(takes_context=True)
def query_with(context: dict[str, Any], **changes: Any) -> str:
    """The page's query string with some parameters changed; None or "" takes one away: `<a href="{% query_with
    page=2 %}">`.
    """
    request: HttpRequest = context["request"]
    query = request.GET.copy()
    for name, value in changes.items():
        if value is None or value == "":
            query.pop(name, None)
        else:
            query[name] = str(value)
    return f"?{query.urlencode()}"
