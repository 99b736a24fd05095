"""Which charts the overview shows, in which order. Reads only which series exist, never a point."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from urllib.parse import urlencode

from webapp.methods.selectors import Chart, charts_of, describe
from webapp.runs.models import Run, RunKind

ORDER = {
    RunKind.RL: (
        "reward", "passk-progress", "passk-curve", "entropy", "effective", "lengths", "truncation", "kl", "grad_norm",
        "clip",
    ),
    RunKind.SFT: ("loss", "sft_accuracy", "passk-progress", "passk-curve", "grad_norm", "learning_rate"),
    RunKind.EVALUATE: ("passk-curve",),
}  # fmt: skip
EVALUATION_CHARTS = {
    "passk-progress": (
        "pass@k",
        "Whether more samples solve more problems. pass@1 up and pass@k down is squeezing.",
    ),
    "passk-curve": (
        "pass@k over k",
        "The newest evaluation against the start, same problems. Below the start at large k: solutions were lost.",
    ),
    "effective": (
        "Effective correct trajectories",
        "1/Σp² over distinct correct solutions, on problems with two correct samples now and at the start.",
    ),
}
SECTION_TITLES = {
    "overview": "Overview",
    "method": "The method's own signals",
    "more": "More about the policy",
    "optimisation": "Optimisation",
    "system": "Time and system",
    "other": "Other metrics",
}


@dataclass(frozen=True)
class Frame:
    """One chart's place: its address is made of `slug`, or of `key` for a metric on its own."""

    slug: str
    title: str
    help: str
    keys: tuple[str, ...] = ()
    key: str = ""
    evaluation: bool = False

    @property
    def path(self) -> str:
        """The address of its data below the run's, up to the axis."""
        return f"metric?{urlencode({'key': self.key})}&" if self.key else f"charts/{self.slug}?"


@dataclass
class Section:
    """Charts under one heading; `folded` ones load when they are opened."""

    name: str
    title: str
    frames: list[Frame] = field(default_factory=list)
    folded: bool = False


def sections_of(run: Run, keys: Collection[str], *, evaluated: bool = True) -> list[Section]:
    """The charts of a run that has logged these keys, and has evaluations or not.

    While a run goes on, the charts of the fixed order stand there before their first point: whoever comes early sees
    the page that a late visitor sees.
    """
    logged = set(keys)
    charts = {chart.slug: chart for chart in charts_of(run.methods)}
    order = ORDER.get(RunKind(run.kind), ())
    sections = {name: Section(name, title, folded=name == "other") for name, title in SECTION_TITLES.items()}
    for slug in order:
        if slug in EVALUATION_CHARTS:
            if evaluated or not run.is_over:
                sections["overview"].frames.append(Frame(slug, *EVALUATION_CHARTS[slug], evaluation=True))
        elif (chart := charts.get(slug)) and (not run.is_over or _present(chart, logged)):
            sections["overview"].frames.append(_frame(chart))
    for slug, chart in charts.items():
        if slug in order or not (_present(chart, logged) or (chart.section == "method" and not run.is_over)):
            continue
        sections["more" if chart.section == "overview" else chart.section].frames.append(_frame(chart))
    shown = {key for section in sections.values() for frame in section.frames for key in frame.keys}
    sections["other"].frames = [_single(key) for key in sorted(logged - shown)]
    return [section for section in sections.values() if section.frames]


def _present(chart: Chart, logged: Iterable[str]) -> bool:
    return not set(chart.series).isdisjoint(logged)


def _frame(chart: Chart) -> Frame:
    return Frame(chart.slug, chart.title, chart.help, chart.series)


def _single(key: str) -> Frame:
    metric = describe(key)
    return Frame(f"metric-{key}", metric.title, metric.help, (key,), key)
