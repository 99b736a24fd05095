"""Values of configurations in a table."""

from typing import Any

from django import template

from webapp.core.templatetags.figures import significant, undefined
from webapp.launch.fields import MISSING
from webapp.launch.preview import shown

register = template.Library()


@register.filter
def setting(value: Any) -> str:
    """A JSON value as text; a dash with the reason where a configuration has no such setting."""
    return undefined("This configuration has no such setting") if value is MISSING else shown(value)


@register.filter
def pvalue(p: float) -> str:
    """Two digits, and nothing finer than a thousandth."""
    return "< 0.001" if p < 0.001 else significant(p, 2)
