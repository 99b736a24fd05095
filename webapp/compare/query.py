"""What the address of the compare page says. The whole view is in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import QueryDict

from webapp.metrics.axes import AXES

MOST_RUNS = 24
MOST_METRICS = 12
TABLE_KS = (1, 4, 16, 64)
BASE = "base"
"""Name of the base in `ref`."""


@dataclass(frozen=True)
class Query:
    """`runs` in the order of their colours. `evaluation` "" takes what most of the runs have; `at` is last or start.

    `by` is "run", "seeds" or "" (seeds where a configuration has several). `ref` is the id of a run, of a group, or
    "base". `set` is the identity that is drawn when the runs have several, and `mix` draws them all.
    """

    runs: tuple[str, ...] = ()
    evaluation: str = ""
    at: str = "last"
    by: str = ""
    ref: str = ""
    set: str = ""
    mix: bool = False
    axis: str = "iteration"
    metrics: tuple[str, ...] = ()

    @classmethod
    def of(cls, get: QueryDict) -> "Query":
        """From the query string; unknown values fall back. Lists may come as a,b or as repeated parameters."""
        return cls(
            runs=_list(get, "runs")[:MOST_RUNS],
            evaluation=_clean(get.get("evaluation", "")),
            at="start" if get.get("at") == "start" else "last",
            by=get.get("by", "") if get.get("by") in ("run", "seeds") else "",
            ref=_clean(get.get("ref", "")),
            set=_clean(get.get("set", "")),
            mix=get.get("mix") == "1",
            axis=get.get("x", "") if get.get("x") in AXES else "iteration",
            metrics=_list(get, "metrics")[:MOST_METRICS],
        )

    def encoded(self, **changes: Any) -> str:
        """The query string with some fields changed, without what is at its default."""
        values: Mapping[str, Any] = {
            "runs": ",".join(self.runs), "evaluation": self.evaluation, "at": self.at if self.at != "last" else "",
            "by": self.by, "ref": self.ref, "set": self.set, "mix": "1" if self.mix else "",
            "x": self.axis if self.axis != "iteration" else "", "metrics": ",".join(self.metrics),
        } | changes  # fmt: skip
        return urlencode({name: value for name, value in values.items() if value}, safe=",/@")


def _list(get: QueryDict, name: str) -> tuple[str, ...]:
    found = [_clean(part) for value in get.getlist(name) for part in value.split(",")]
    return tuple(dict.fromkeys(part for part in found if part))


def _clean(text: str) -> str:
    return text.strip()[:160]
