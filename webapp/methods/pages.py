"""What the pages of the library show: methods found by the words of a problem, and what their studies found."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from trainer.contract.findings import Findings, Row, findings
from trainer.contract.forms import FormField, fields_of
from trainer.contract.results import StudyResults
from trainer.contract.study import Study
from trainer.core.registry import MethodSpec
from trainer.methods import all_methods, conflict_between
from trainer.studies import committed_results, load_study, study_slugs
from trainer.studies.report import told_by, verdict_of
from webapp.core.counts import counted

TONES = {"confirmed here": "good", "direction seen": "accent", "not seen": "warn"}


@dataclass(frozen=True)
class Entry:
    """A method in the list."""

    spec: MethodSpec
    verdict: str

    @property
    def tone(self) -> str:
        return TONES.get(self.verdict, "")

    @property
    def slots(self) -> list[str]:
        return [slot.replace("_", " ") for slot in self.spec.parts]


def found_by(query: str) -> list[Entry]:
    """Methods in whose words each word of the query stands, by title; all of them for an empty query."""
    words = query.lower().split()
    specs = sorted(all_methods().values(), key=lambda spec: spec.title.lower())
    return [Entry(spec, verdict_of(spec.slug)) for spec in specs if all(word in _words(spec) for word in words)]


def _words(spec: MethodSpec) -> str:
    paper = spec.paper
    parts = (spec.slug, spec.title, spec.summary, paper.title, paper.arxiv, paper.authors, *spec.problems, *spec.parts)
    return " ".join(parts).lower().replace("_", " ")


def problems() -> list[str]:
    """The problems that methods are for, those of the most methods first."""
    counted = Counter(problem for spec in all_methods().values() for problem in spec.problems)
    return sorted(counted, key=lambda problem: (-counted[problem], problem))


@dataclass(frozen=True)
class About:
    """A method's page."""

    entry: Entry
    told: list[tuple[str, str]]
    fields: list[FormField]
    composes: list[MethodSpec]
    refused: list[tuple[MethodSpec, str]]
    study: Study | None
    found: Findings | None


def about(slug: str) -> About | None:
    """None for an unknown slug."""
    spec = all_methods().get(slug)
    if spec is None:
        return None
    others = [other for other in all_methods().values() if other.slug != slug]
    reasons = [(other, conflict_between(spec, other)) for other in others]
    return About(
        entry=Entry(spec, verdict_of(slug)),
        told=[(head, text.replace("`", "")) for head, text in told_by(spec)],
        fields=fields_of(spec.params),
        composes=[other for other, reason in reasons if reason is None],
        refused=[(other, reason) for other, reason in reasons if reason is not None],
        study=study_of(slug),
        found=committed(slug),
    )


def study_of(slug: str) -> Study | None:
    """The study that comes with the product, where the method has one."""
    return load_study(slug) if slug in study_slugs() else None


@cache
def committed(slug: str) -> Findings | None:
    """What the committed numbers say, by this release's rules; None where the study has not been run as it stands."""
    document = committed_results(slug)
    if document is None or verdict_of(slug) == "not run yet":
        return None
    return findings(load_study(slug), StudyResults.model_validate(document["results"]))


# Figures and tables of any study


def slots_of(found: Findings) -> dict[str, int]:
    """Each arm's colour, by its place in the study."""
    return {arm.name: place for place, arm in enumerate(found.arms)}


def frontier_spec(found: Findings) -> dict[str, Any]:
    """pass@K against pass@1 of every arm at every temperature, as `static/js/charts.js` takes it."""
    slots: dict[str, Any] = {**slots_of(found), "base": "base"}
    titles = {arm.name: arm.title for arm in found.arms}
    series = []
    # A frozen arm lies on the base.
    for name in dict.fromkeys(point.arm for point in found.frontier if point.role != "null"):
        points = sorted((p for p in found.frontier if p.arm == name), key=lambda p: p.pass1)
        series.append(
            {
                "key": name,
                "name": titles.get(name, name),
                "slot": slots[name],
                "x": [p.pass1 for p in points],
                "y": [p.passk for p in points],
                "notes": [f"T = {p.temperature:g}" for p in points],
                "markers": True,
            }
        )
    note = "each arm at every temperature, means over seeds"
    if found.chance is not None and found.frontier_k in found.ks:
        note += f" · chance {found.chance[found.ks.index(found.frontier_k)]:.3f}"
    return {
        "kind": "lines",
        "title": f"pass@{found.frontier_k} against pass@1",
        "note": note,
        "legend": True,
        "x": {"title": "pass@1", "unit": ""},
        "y": {"title": f"pass@{found.frontier_k}"},
        "series": series,
        "empty": "" if series else "No arm has been measured yet.",
    }


def passk_spec(found: Findings) -> dict[str, Any]:
    """pass@k over k of every arm at the temperature that stands for sampling as trained."""
    slots = slots_of(found)
    series: list[dict[str, Any]] = []
    if found.base:
        row = _plain(found.base)
        series.append({"key": "base", "name": "base", "slot": "base", **_curve(found, row)})
    for arm in found.arms:
        if arm.rows:
            row = _plain(arm.rows)
            series.append({"key": arm.name, "name": arm.title, "slot": slots[arm.name], **_curve(found, row)})
    if found.chance is not None and series:
        line = {"x": list(found.ks), "y": list(found.chance), "markers": False}
        series.append({"key": "chance", "name": "chance", "slot": "chance", **line})
    return {
        "kind": "passk",
        "title": "pass@k over k",
        "note": "at the temperature nearest 1; bands: 95 % over seeds",
        "legend": True,
        "x": {"title": "k", "unit": "samples"},
        "y": {"title": "pass@k", "rate": True},
        "series": series,
        "empty": "" if series else "No arm has been measured yet.",
    }


FIGURES = {"frontier": frontier_spec, "passk": passk_spec}


def _plain(rows: Iterable[Row]) -> Row:
    return min(rows, key=lambda row: abs(row.temperature - 1))


def _curve(found: Findings, row: Row) -> dict[str, Any]:
    several = len(row.estimates) > 0 and row.estimates[0].seeds > 1
    return {
        "x": list(found.ks),
        "y": [e.value for e in row.estimates],
        "lo": [_within(e.lo) for e in row.estimates] if several else [None] * len(found.ks),
        "hi": [_within(e.hi) for e in row.estimates] if several else [None] * len(found.ks),
        "notes": [f"{counted(e.seeds, 'seed')}, {counted(e.problems, 'problem')}" for e in row.estimates],
        "markers": True,
    }


def _within(bound: float | None) -> float | None:
    """A bound of a rate as far as it can be drawn."""
    return None if bound is None else min(1.0, max(0.0, bound))


@dataclass(frozen=True)
class TableRow:
    """One line of the table of arms: an arm at one temperature, or the base, or chance."""

    slot: int | str
    title: str
    role: str
    seeds: int | None
    temperature: float | None
    best: bool
    cells: list[dict[str, Any]]
    truncated: float | None
    tokens: float | None


_NO_VALUE: dict[str, Any] = {"value": None, "lo": None, "hi": None, "note": ""}


def table(found: Findings) -> list[TableRow]:
    """The base and chance, then every arm near T = 1 and at its best temperature on validation."""
    rows = []
    for row in found.base:
        cells = _cells(found, row)
        rows.append(TableRow("base", "base", "", None, row.temperature, False, cells, row.truncated, None))
    if found.chance is not None:
        cells = [
            {**_NO_VALUE, "k": k, "value": c, "note": "exact"} for k, c in zip(found.ks, found.chance, strict=True)
        ]
        rows.append(TableRow("chance", "chance", "", None, None, False, cells, None, None))
    for place, arm in enumerate(found.arms):
        shown = {_plain(arm.rows).temperature, arm.temperature} if arm.rows else set()
        tokens = arm.spent.get("sampled_tokens")
        for row in arm.rows:
            if row.temperature in shown:
                best = len(arm.rows) > 1 and row.temperature == arm.temperature
                cells = _cells(found, row)
                seeds = len(arm.seeds)
                rows.append(
                    TableRow(place, arm.title, arm.role, seeds, row.temperature, best, cells, row.truncated, tokens)
                )
        if not arm.rows:
            empty = [{**_NO_VALUE, "k": k} for k in found.ks]
            rows.append(TableRow(place, arm.title, arm.role, len(arm.seeds), None, False, empty, None, tokens))
    return rows


def _cells(found: Findings, row: Row) -> list[dict[str, Any]]:
    return [
        {"k": k, "value": e.value, "lo": e.lo, "hi": e.hi, "note": e.note}
        for k, e in zip(found.ks, row.estimates, strict=True)
    ]


@dataclass(frozen=True)
class SeedRow:
    """Every seed of an arm at its best temperature on validation: (seed, pass@1, pass@K)."""

    slot: int
    title: str
    temperature: float
    seeds: list[tuple[int, float, float]]


def every_seed(found: Findings) -> list[SeedRow]:
    """Arms whose pass@1 and pass@K were measured. K is the last of the study's ks."""
    out = []
    for slot, arm in enumerate(found.arms):
        row = next((row for row in arm.rows if row.temperature == arm.temperature), None)
        if row is not None and len(row.estimates[0].per_seed) == len(arm.seeds):
            values = zip(arm.seeds, row.estimates[0].per_seed, row.estimates[-1].per_seed, strict=True)
            out.append(SeedRow(slot, arm.title, row.temperature, list(values)))
    return out


def context_of(found: Findings | None) -> dict[str, Any]:
    """What `methods/_findings.html` shows; without anything measured there is nothing to show."""
    if found is None or not (found.base or any(arm.rows for arm in found.arms)):
        return {"found": found, "rows": []}
    return {"found": found, "rows": table(found), "every_seed": every_seed(found), "last_k": found.ks[-1]}
