"""The verdict line of a run, computed by the protocol's rules and never written by hand.

A run is *squeezing* when pass@k_max falls while pass@1 rises, both by their paired intervals, or when the effective
number of correct trajectories falls on problems solved at both ends. Whatever its intervals do not settle, the line
calls not resolved. One run is one seed: the line says so, and never "better".
"""

from dataclasses import dataclass
from typing import Any, Literal

from trainer.contract.intervals import Estimate
from trainer.contract.passk import k_grid
from webapp.core.counts import counted
from webapp.evals import curves
from webapp.evals.models import Evaluation
from webapp.evals.selectors import estimate_json, latest, start_of
from webapp.runs.models import Run

Kind = Literal["squeezing", "not squeezing", "not resolved", "pending"]


@dataclass(frozen=True)
class Change:
    """pass@k at the start and now, and the paired difference."""

    k: int
    start: Estimate
    now: Estimate
    difference: Estimate

    @property
    def direction(self) -> Literal["rose", "fell", "not resolved"]:
        if self.difference.lo is not None and self.difference.lo > 0:
            return "rose"
        if self.difference.hi is not None and self.difference.hi < 0:
            return "fell"
        return "not resolved"


@dataclass(frozen=True)
class Verdict:
    """`sentence` is what the page shows; the other fields are what it rests on."""

    kind: Kind
    sentence: str
    first: Change | None = None
    last: Change | None = None
    effective: curves.Effective | None = None
    chance: float | None = None
    problems: int = 0
    seeds: int = 1
    name: str = ""
    iteration: int | None = None

    def json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "sentence": self.sentence,
            "chance": self.chance,
            "problems": self.problems,
            "seeds": self.seeds,
            "evaluation": self.name,
            "iteration": self.iteration,
            "changes": [
                {
                    "k": change.k,
                    "start": estimate_json(change.start),
                    "now": estimate_json(change.now),
                    "difference": estimate_json(change.difference),
                    "direction": change.direction,
                }
                for change in (self.first, self.last)
                if change is not None
            ],
        }


def verdict_of(run: Run) -> Verdict:
    """By the final evaluation where it and its base exist, else by the newest validation against the start."""
    for name in ("test", "validation"):
        now = latest(run, name)
        start = start_of(run, now) if now else None
        if now is not None and start is not None:
            return verdict_between(now, start)
    return Verdict("pending", "No verdict yet: it needs an evaluation of the start and one after it.")


def verdict_between(now: Evaluation, start: Evaluation) -> Verdict:
    """The verdict of `now` against `start`, two evaluations on one set."""
    ks = k_grid(min(now.samples, start.samples)) if min(now.samples, start.samples) else []
    uids = curves.shared(now, start)
    if not uids or len(ks) < 2:
        return Verdict("pending", "No verdict: the two evaluations share no problem, or have one sample a problem.")
    first, last = _change(now, start, ks[0]), _change(now, start, ks[-1])
    numbers = curves.effective(now, start)
    chances = curves.chance_curve(now.set, [ks[-1]])
    chance = chances[0] if chances else None
    by_curve = first.direction == "rose" and last.direction == "fell"
    by_number = numbers is not None and numbers.falls
    unresolved = [change for change in (first, last) if change.direction == "not resolved"]
    if by_curve or by_number:
        kind: Kind = "squeezing"
    elif unresolved:
        kind = "not resolved"
    else:
        kind = "not squeezing"
    lead = {"squeezing": "Squeezing", "not squeezing": "Not squeezing", "not resolved": "Squeezing is not resolved"}[
        kind
    ]
    parts = [_said(first), _said(last)]
    if numbers is not None and (by_number or not by_curve):
        parts.append(_said_effective(numbers))
    seeds = "one seed"
    guess = f"chance {_short(chance)} at k = {ks[-1]}" if chance is not None else "no chance line"
    foot = f"({guess}; {seeds}, {counted(len(uids), 'problem')})"
    return Verdict(
        kind=kind,
        sentence=f"{lead}: {', '.join(parts)} {foot}.",
        first=first,
        last=last,
        effective=numbers,
        chance=chance,
        problems=len(uids),
        name=now.name,
        iteration=now.iteration,
    )


def _change(now: Evaluation, start: Evaluation, k: int) -> Change:
    before, after, difference = curves.pass_at(start, k), curves.pass_at(now, k), curves.difference(now, start, k)
    assert before is not None
    assert after is not None
    assert difference is not None
    return Change(k, before, after, difference)


def _said(change: Change) -> str:
    values = f"{_short(change.start.value)} → {_short(change.now.value)}"
    if change.direction != "not resolved":
        return f"pass@{change.k} {change.direction} {values}{_bounds(change.now)}"
    if change.difference.lo is None or change.difference.hi is None:
        return f"pass@{change.k} {values} (not resolved: {change.difference.note})"
    return f"pass@{change.k} {values} (not resolved: change{_bounds(change.difference)})"


def _said_effective(numbers: curves.Effective) -> str:
    what = "effective correct trajectories"
    both = f"on {counted(numbers.problems, 'problem')} solved at both"
    values = f"{_number(numbers.start.value)} → {_number(numbers.now.value)} {both}"
    if numbers.rise.lo is None or numbers.rise.hi is None:
        return f"{what} {values} (not resolved: {numbers.rise.note})"
    if numbers.falls:
        return f"{what} fell {values}"
    return f"{what} rose {values}" if numbers.rise.hi < 0 else f"{what} {values} (not resolved)"


def _bounds(estimate: Estimate) -> str:
    if estimate.lo is None or estimate.hi is None:
        return f" ({estimate.note})" if estimate.note else ""
    return f" [{_short(estimate.lo)}, {_short(estimate.hi)}]"


def _short(value: float) -> str:
    """A rate with two decimals: .05, −.12, 1.00; three where two would say .00."""
    digits = 3 if 0 < abs(value) < 0.095 else 2
    text = f"{abs(value):.{digits}f}".removeprefix("0")
    return f"\u2212{text}" if value < 0 else text


def _number(value: float) -> str:
    return f"{value:.3g}" if value != float("inf") else "∞"
