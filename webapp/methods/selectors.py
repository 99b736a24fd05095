"""Reads of the library. Nothing here touches the database."""

from collections.abc import Iterable

from trainer.contract.charts import BASE_CHARTS, Chart
from trainer.contract.metric_names import Metric
from trainer.contract.metric_names import describe as _describe
from trainer.methods import all_methods

__all__ = ["Chart", "Metric", "chart_by_slug", "charts_of", "derived", "describe", "described", "method_titles"]


def charts_of(methods: Iterable[str]) -> list[Chart]:
    """The base charts, then the signals of these methods in their order. Methods that this installation does not know
    bring none.
    """
    known = all_methods()
    return [*BASE_CHARTS, *(chart for slug in methods if slug in known for chart in known[slug].signals)]


def chart_by_slug(methods: Iterable[str], slug: str) -> Chart | None:
    """One of `charts_of`."""
    return next((chart for chart in charts_of(methods) if chart.slug == slug), None)


def method_titles(methods: Iterable[str]) -> list[str]:
    """What the methods are called; an unknown one by its slug."""
    known = all_methods()
    return [known[slug].title if slug in known else slug for slug in methods]


def derived(methods: Iterable[str]) -> list[str]:
    """Titles of those whose papers leave formulas open, so that ours are used."""
    known = all_methods()
    return [known[slug].title for slug in methods if slug in known and known[slug].derived]


def describe(key: str) -> Metric:
    """Title, unit and meaning of a metric; of an unknown key, the key alone."""
    return _describe(key)


def described(keys: Iterable[str]) -> list[tuple[str, Metric]]:
    """(key as logged, its metric), those with an explanation first."""
    found = [(key, _describe(key)) for key in keys]
    return sorted(found, key=lambda pair: (not pair[1].help, pair[0]))
