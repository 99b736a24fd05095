"""The page's tables, once as rows for the template and once as Markdown for a notebook or a paper's draft."""

from collections.abc import Sequence

from webapp.compare.differences import DifferenceRow
from webapp.compare.query import TABLE_KS
from webapp.compare.selectors import Comparison, Line, Value
from webapp.core.templatetags.figures import significant
from webapp.evals import curves


def table_ks(comparison: Comparison) -> list[int]:
    """The ks that at least one line can show."""
    largest = max((line.samples for line in comparison.all_lines), default=0)
    return [k for k in TABLE_KS if k <= max(largest, 1)]


def chance_values(comparison: Comparison, ks: Sequence[int]) -> list[float] | None:
    """Chance on the one set that is drawn; None for several, or where the task gives none."""
    drawn = comparison.drawn_sets
    return curves.chance_curve(drawn[0], ks) if len(drawn) == 1 else None


def with_members(comparison: Comparison) -> list[tuple[Line, bool]]:
    """(line, is a member of the group above) in the table's order."""
    out: list[tuple[Line, bool]] = []
    for line in comparison.all_lines:
        out.append((line, False))
        out += [(member, True) for member in line.members]
    return out


def markdown(comparison: Comparison, rows: Sequence[DifferenceRow], reference: Line | None) -> str:
    """Both tables as GitHub's Markdown, with everything that is needed to read the numbers."""
    ks = table_ks(comparison)
    head = ["Run", "Seeds", *(f"pass@{k}" for k in ks), "Problems", "Samples", "T"]
    lines = [_row(head), _row(["---"] * len(head))]
    for line, inner in with_members(comparison):
        cells = [text_of(line.at(k)) for k in ks]
        temperature = str(line.first.set.sampler.get("temperature", "—"))
        name = f"↳ {line.name}" if inner else line.name
        lines.append(_row([name, str(line.seeds), *cells, str(line.problems), str(line.samples), temperature]))
    chance = chance_values(comparison, ks)
    if chance is not None:
        lines.append(_row(["chance", "", *(significant(x) for x in chance), "", "", ""]))
    lines += ["", "95 % intervals: BCa over problems for one run, t over seeds for several."]
    if rows and reference is not None:
        head = [f"Minus {reference.name}", "Pairs of seeds", *(f"pass@{k}" for k in TABLE_KS), "Problems"]
        lines += ["", _row(head), _row(["---"] * len(head))]
        for row in rows:
            cells = [f"{text_of(c.value)}{f' (p {significant(c.p, 2)})' if c.p is not None else ''}" for c in row.cells]
            lines.append(_row([row.line.name, str(row.seeds), *cells, str(row.problems)]))
        lines += ["", "p adjusted by Holm over all differences shown; paired by problem."]
    return "\n".join(lines) + "\n"


def text_of(value: Value) -> str:
    """0.350 [0.310, 0.390], or — for what is undefined."""
    if value.value is None:
        return "—"
    shown = significant(value.value)
    if value.lo is None or value.hi is None:
        return f"{shown} ({value.note})" if value.note else shown
    return f"{shown} [{significant(value.lo)}, {significant(value.hi)}]" + (f" ({value.note})" if value.note else "")


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
