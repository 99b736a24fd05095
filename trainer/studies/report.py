"""A study's findings for people: a table for the terminal, and a Markdown section with a small SVG for docs/methods."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

from trainer.contract.files import write_whole
from trainer.contract.findings import BASE, ArmFinding, Findings, Point, Row, findings, frontier
from trainer.contract.forms import fields_of
from trainer.contract.intervals import SeedEstimate
from trainer.contract.results import StudyResults, study_hash
from trainer.contract.study import Study
from trainer.core.registry import MethodSpec
from trainer.methods import all_methods
from trainer.studies import FOLDER, committed_results, load_study

DOCS = FOLDER.parents[1] / "docs" / "methods"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
AXES = {
    "sampled_tokens": "Sampled tokens",
    "iterations": "Iterations",
    "optimizer_steps": "Optimiser steps",
    "device_seconds": "Device seconds",
}


def number(value: float | None) -> str:
    """Three decimals, without a leading zero as in the papers; — for what is undefined."""
    if value is None or value != value:
        return "—"
    text = f"{abs(value):.3f}"
    return ("−" if value < 0 else "") + (text[1:] if text.startswith("0") else text)


def interval(e: SeedEstimate) -> str:
    """value [lo, hi], or the value alone."""
    bounds = f" [{number(e.lo)}, {number(e.hi)}]" if e.lo is not None and e.hi is not None else ""
    return number(e.value) + bounds


def _header(found: Findings) -> list[str]:
    return ["arm", "role", "seeds", "T", *(f"pass@{k}" for k in found.ks), "cut off", "tokens"]


def _table(found: Findings) -> list[list[str]]:
    """One row an arm at T = 1 and, where it is another, at its best temperature on validation."""
    rows = []
    for row in found.base:
        rows.append([BASE, "", "", f"{row.temperature:g}", *map(interval, row.estimates), number(row.truncated), ""])
    if found.chance is not None:
        rows.append(["chance", "", "", "", *map(number, found.chance), "", ""])
    for arm in found.arms:
        for row in _shown(arm):
            best = "*" if row.temperature == arm.temperature and len(arm.rows) > 1 else ""
            values = [*map(interval, row.estimates), number(row.truncated)]
            tokens = f"{arm.spent.get('sampled_tokens', 0):,.0f}".replace(",", " ")
            rows.append([arm.title, arm.role, str(len(arm.seeds)), f"{row.temperature:g}{best}", *values, tokens])
        if not arm.rows:
            rows.append([arm.title, arm.role, str(len(arm.seeds)), "—", *("—" for _ in found.ks), "—", "—"])
    return rows


def _shown(arm: ArmFinding) -> list[Row]:
    plain = min((row.temperature for row in arm.rows), key=lambda t: abs(t - 1), default=None)
    return [row for row in arm.rows if row.temperature in (plain, arm.temperature)]


def table_text(found: Findings) -> str:
    """For a terminal: table, frontier, contrasts and the verdict."""
    rows = [_header(found), *_table(found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += [
        "",
        "T with *: best on validation",
        "",
        f"Frontier (pass@1, pass@{found.frontier_k}), of all arms together:",
    ]
    front = frontier([p.pass1 for p in found.frontier], [p.passk for p in found.frontier])
    by_place = {(p.pass1, p.passk): p for p in reversed(found.frontier)}
    for x, y in front:
        p = by_place[x, y]
        lines.append(f"  {number(x)}  {number(y)}  {p.arm} at T = {p.temperature:g}")
    lines += ["", "Contrasts (p by Holm):"]
    for c in found.contrasts:
        lines.append(f"  {c.metric} of {c.arm} minus {c.against}: {interval(c.estimate)}, p {number(c.p)}")
    lines += [f"  null arm {name}: {text}" for name, text in found.nulls.items()]
    lines += ["", found.sentence]
    return "\n".join(lines)


def section(study: Study, results: StudyResults) -> str:
    """The Markdown between the markers of docs/methods/<slug>.md."""
    found = findings(study, results)
    protocol = study.protocol(results.form)
    head = _header(found)
    said = [
        f"**Claim.** {study.claim}",
        f"**Verdict.** {found.sentence}",
        f"![pass@{found.frontier_k} against pass@1]({study.slug}.svg)",
        _markdown([head, ["---"] * len(head), *_table(found)]),
        f"T marked * is the arm's best on validation. {results.form.capitalize()} form: {protocol.problems} test problems, "
        f"{protocol.samples} samples each; equal {AXES[study.budget.axis].lower()}. Configurations tried: "
        + ", ".join(f"{family} {n}" for family, n in found.configurations.items())
        + ".",
        "| arm | against | metric | difference | p (Holm) |\n|---|---|---|---|---|\n"
        + "\n".join(
            f"| {c.arm} | {c.against} | {c.metric} | {interval(c.estimate)} | {number(c.p)} |" for c in found.contrasts
        ),
        *(f"Null arm {name}: {text}." for name, text in found.nulls.items()),
        _spent(found),
    ]
    if study.derived:
        said.append("*derived*: the paper leaves formulas open; ours stand in for them.")
    said.append(
        f"Run it: `python -m trainer study {study.slug}{' --quick' if results.form == 'quick' else ''} --out DIR`; "
        f"numbers: `trainer/studies/results/{study.slug}.json`."
    )
    return "\n\n".join(said)


def _spent(found: Findings) -> str:
    names = list(dict.fromkeys(name for arm in found.arms for name in arm.spent))
    rows = [["arm", *(AXES.get(name, name) for name in names)], ["---"] * (len(names) + 1)]
    for arm in found.arms:
        cells = [f"{arm.spent[name]:,.0f}".replace(",", " ") if name in arm.spent else "—" for name in names]
        rows.append([arm.title, *cells])
    return _markdown(rows)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


# The picture

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 52, 190, 16, 44


class Scale:
    """A linear map from values to pixels."""

    def __init__(self, lo: float, hi: float, start: float, end: float) -> None:
        self.lo, self.span, self.start, self.length = lo, hi - lo, start, end - start

    def __call__(self, value: float) -> float:
        return self.start + (value - self.lo) / self.span * self.length


def svg(study: Study, results: StudyResults) -> str:
    """pass@K against pass@1 of every arm at every temperature, near where they lie; the base grey and dashed."""
    found = findings(study, results)
    points = [p for p in found.frontier if p.role != "null"]
    arms = list(dict.fromkeys(p.arm for p in points if p.arm != BASE))
    left, right = _range([p.pass1 for p in points])
    low, high = _range([p.passk for p in points])
    x_of = Scale(left, right, LEFT, WIDTH - RIGHT)
    y_of = Scale(low, high, HEIGHT - BOTTOM, TOP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f"<title>{escape(study.title)}: pass@{found.frontier_k} against pass@1</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
    ]
    for i in range(5):
        height, across = low + (high - low) * i / 4, left + (right - left) * i / 4
        y = y_of(height)
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{number(height)}</text>')
        out.append(
            f'<text x="{x_of(across):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" '
            f'fill="#555">{number(across)}</text>'
        )
    if found.chance is not None and found.frontier_k in found.ks:
        chance = found.chance[found.ks.index(found.frontier_k)]
        y = y_of(max(low, chance))
        if chance >= low:
            out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#888" stroke-dasharray="2 4"/>')
        where = "" if chance >= low else ", below"
        out.append(f'<text x="{WIDTH - RIGHT + 6}" y="{y + 4:.1f}" fill="#666">chance {number(chance)}{where}</text>')
    for place, arm in enumerate([BASE, *arms]):
        colour = "#888" if arm == BASE else COLOURS[(place - 1) % len(COLOURS)]
        out += _arm_marks(
            [p for p in points if p.arm == arm], x_of, y_of, colour, dashed=place == 0 or place > len(COLOURS)
        )
        y = TOP + 16 + 18 * place
        out.append(f'<circle cx="{WIDTH - RIGHT + 70}" cy="{y - 4}" r="4" fill="{colour}"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 80}" y="{y}" fill="#222">{escape(arm)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    out.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle" fill="#222">pass@1</text>')
    out.append(
        f'<text transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle" '
        f'fill="#222">pass@{found.frontier_k}</text>'
    )
    return "\n".join([*out, "</svg>"]) + "\n"


def _range(values: Sequence[float]) -> tuple[float, float]:
    """From a little below the least to a little above the greatest, within 0 and 1."""
    least, greatest = min(values, default=0.0), max(values, default=1.0)
    margin = max(0.01, 0.15 * (greatest - least))
    return max(0.0, least - margin), min(1.0, greatest + margin)


def _arm_marks(points: Sequence[Point], x_of: Scale, y_of: Scale, colour: str, *, dashed: bool) -> list[str]:
    if not points:
        return []
    places = [(x_of(p.pass1), y_of(p.passk)) for p in sorted(points, key=lambda p: p.temperature)]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return [
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"{dash}/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places),
    ]


def publish(study: Study, results: StudyResults, *, docs: Path = DOCS) -> list[Path]:
    """Writes the committed results, the picture, and docs/methods/<slug>.md; what was written."""
    kept = FOLDER / "results" / f"{study.slug}.json"
    kept.parent.mkdir(exist_ok=True)
    document = {"results": results.model_dump(mode="json"), "findings": findings(study, results).json()}
    write_whole(kept, json.dumps(document, ensure_ascii=False) + "\n")
    return [kept, *publish_docs(study, results, docs=docs)]


def publish_docs(study: Study, results: StudyResults | None, *, docs: Path = DOCS) -> list[Path]:
    """The picture and the page. On the page only what stands between the markers is written; the rest is by hand."""
    docs.mkdir(parents=True, exist_ok=True)
    page, picture = docs / f"{study.slug}.md", docs / f"{study.slug}.svg"
    spec = all_methods().get(study.method)
    text = page.read_text(encoding="utf-8") if page.is_file() else f"# {spec.title if spec else study.title}\n"
    if spec is not None:
        text = _with_block(text, "method", about(spec))
    outcome = section(study, results) if results else f"**Claim.** {study.claim}\n\n**Verdict.** Not run yet."
    text = _with_block(text, "study", f"## Study\n\n{outcome}")
    write_whole(page, text)
    if results is None:
        return [page]
    write_whole(picture, svg(study, results))
    return [page, picture]


def _with_block(text: str, name: str, content: str) -> str:
    """The text with the block of this name replaced, or added at its end."""
    begin, end = f"<!-- {name}: written by `python -m trainer study SLUG --report` -->", f"<!-- /{name} -->"
    block = f"{begin}\n\n{content}\n\n{end}"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    return pattern.sub(lambda _: block, text) if pattern.search(text) else f"{text.rstrip()}\n\n{block}\n"


def about(spec: MethodSpec) -> str:
    """The method as its module tells it: the rule, the deviations, how to launch it, the parameters."""
    paper = f"{spec.paper.title} ([arXiv {spec.paper.arxiv}](https://arxiv.org/abs/{spec.paper.arxiv}))"
    rows = [["parameter", "default", "what it does"], ["---"] * 3]
    for field in fields_of(spec.params):
        default = "—" if field.default is None else str(field.default)
        unit = f" ({field.unit})" if field.unit else ""
        choices = f" One of {', '.join(field.choices)}." if field.choices else ""
        rows.append([f"`{field.path}`", default, f"{field.title}{unit}. {field.help}{choices}"])
    parts = [spec.summary, f"Paper: {paper}.", f"Slots: {', '.join(spec.parts)}."]
    if spec.problems:
        parts.append(f"For: {', '.join(spec.problems)}.")
    parts += [text for _, text in told_by(spec)]
    launch = json.dumps({"kind": "rl", "methods": [{"slug": spec.slug}]})
    parts.append(f"Launch it from the method's page, or with `{launch}` in a configuration.")
    if len(rows) > 2:
        parts.append(_markdown(rows))
    return "\n\n".join(parts)


def told_by(spec: MethodSpec) -> list[tuple[str, str]]:
    """(first words, paragraph) of the method's module docstring, without its first line, each on one line."""
    module = sys.modules.get(spec.params.__module__)
    paragraphs = (inspect.getdoc(module) or "").split("\n\n")[1:] if module else []
    flat = [" ".join(paragraph.split()) for paragraph in paragraphs]
    return [(text.partition(":")[0], text.replace("``", "`")) for text in flat if text]


def verdict_of(slug: str) -> str:
    """The committed verdict of a method's study; "not run yet" without a study, or results of this wording of it."""
    document = committed_results(slug)
    if document is None:
        return "not run yet"
    results = document["results"]
    if results["study_hash"] != study_hash(load_study(slug), results["form"]):
        return "not run yet"
    return str(document["findings"]["verdict"])
