"""From measurements to a verdict: what a study found, computed by fixed rules and never written by hand.

Test counts alone enter the figures; validation chooses temperatures, and which arm speaks for a family. Differences are paired
by seed and problem. The frontier of a side holds the points (pass@1, pass@K) of all its arms at all temperatures that no
other of its points beats at both; between two of them it is a straight line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from trainer.contract.intervals import (
    FEW_SEEDS,
    SeedEstimate,
    holm,
    over_resampled,
    over_seeds,
    pass_at_k_values,
    resampling_weights,
)
from trainer.contract.passk import chance_pass_at_k
from trainer.contract.results import Split, StudyResults
from trainer.contract.study import Arm, Study, nearest_to_one

if TYPE_CHECKING:
    import numpy as np

Verdict = Literal["confirmed here", "direction seen", "not seen", "quick run only", "not run yet"]
LEVEL = 0.05
FEWEST_SEEDS = 3
CHANCE_MARGIN = 0.10
BASE = "base"


@dataclass(frozen=True)
class Row:
    """Test pass@k of an arm (or the base) at one temperature, in the order of the study's ks."""

    temperature: float
    estimates: tuple[SeedEstimate, ...]
    truncated: float | None


@dataclass(frozen=True)
class ArmFinding:
    """One arm: ``temperature`` is its best on validation at the primary K, ``spent`` the mean of its seeds on each axis."""

    name: str
    title: str
    role: str
    family: str
    seeds: tuple[int, ...]
    temperature: float | None
    rows: tuple[Row, ...]
    spent: dict[str, float]
    metric: SeedEstimate | None


@dataclass(frozen=True)
class Point:
    """Where an arm at one temperature lies on test, means over its seeds."""

    arm: str
    role: str
    temperature: float
    pass1: float
    passk: float


@dataclass(frozen=True)
class ContrastFinding:
    """``estimate`` is the arm minus what it is held against, in the metric's unit; ``p`` is adjusted by Holm over all
    baselines and controls of the study."""

    arm: str
    against: str
    metric: str
    estimate: SeedEstimate
    p: float | None
    temperatures: tuple[float | None, float | None]


@dataclass(frozen=True)
class Findings:
    """``reasons`` say what keeps the verdict from being a higher one. ``configurations``: how many of each family were
    tried. ``margin``: base minus chance at the primary K."""

    verdict: Verdict
    sentence: str
    reasons: tuple[str, ...]
    primary: ContrastFinding | None
    contrasts: tuple[ContrastFinding, ...]
    arms: tuple[ArmFinding, ...]
    base: tuple[Row, ...]
    ks: tuple[int, ...]
    chance: tuple[float, ...] | None
    margin: float | None
    frontier: tuple[Point, ...]
    frontier_k: int
    configurations: dict[str, int]
    nulls: dict[str, str]

    def json(self) -> dict[str, Any]:
        """As JSON; what is not finite is null."""
        cleaned: dict[str, Any] = _cleaned(asdict(self))
        return cleaned


def _cleaned(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: _cleaned(v) for k, v in value.items()}
    return [_cleaned(v) for v in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True)
class _Measured:
    """The study's measurements, looked up by arm, seed and temperature."""

    study: Study
    results: StudyResults

    @property
    def k(self) -> int:
        return self.study.primary.k or 1

    @property
    def samples(self) -> int:
        """The largest K of which every test evaluation has an estimate."""
        measured = [one.samples for one in self.results.sets if one.split == "test"]
        return min(measured, default=self.study.protocol(self.results.form).samples)

    @property
    def frontier_k(self) -> int:
        """K of the frontier's picture: that of the contrast, else the largest of the study."""
        primary = self.study.primary
        if primary.is_frontier and primary.k is not None:
            return primary.k
        return max((k for k in self.study.evaluation.ks if k <= self.samples), default=1)

    def weights(self, arm: str) -> dict[int, str]:
        """Weights by seed."""
        return {run.seed: run.weights_hash for run in self.results.runs if run.arm == arm}

    def values(self, weights: str, split: Split, temperature: float, k: int) -> list[float] | None:
        """pass@k of each problem; None where it was not measured, or k is above the samples."""
        found = self.results.values(weights, split, temperature)
        if found is None or k > found[0].samples:
            return None
        return pass_at_k_values([(found[0].samples, c) for c in found[1].correct], k)

    def seeds_at(self, arm: str, temperature: float) -> list[int]:
        """Seeds of the arm whose test was measured at this temperature."""
        return [s for s, w in sorted(self.weights(arm).items()) if self.results.values(w, "test", temperature)]

    def chosen_on_validation(self, arms: Sequence[Arm]) -> tuple[Arm, float | None] | None:
        """The arm and temperature of the highest mean pass@K on validation; the one nearest 1 without any."""
        best: tuple[float, Arm, float | None] | None = None
        for arm in arms:
            for temperature in self.study.protocol(self.results.form).temperatures:
                means = [
                    math.fsum(v) / len(v)
                    for w in self.weights(arm.name).values()
                    if (v := self.values(w, "validation", temperature, self.k))
                ]
                if means and (best is None or math.fsum(means) / len(means) > best[0]):
                    best = (math.fsum(means) / len(means), arm, temperature)
        if best is not None:
            return best[1], best[2]
        measured = [arm for arm in arms if self.weights(arm.name)]
        return (measured[0], nearest_to_one(self.study.protocol(self.results.form).temperatures)) if measured else None

    def metric(self, arm: str) -> dict[int, float]:
        """The primary metric of the runs by seed."""
        return {run.seed: run.metric for run in self.results.runs if run.arm == arm and run.metric is not None}


def findings(study: Study, results: StudyResults) -> Findings:
    """Everything that the measurements say about the study's claim, as far as they go."""
    m = _Measured(study, results)
    form, primary = results.form, study.primary
    families: dict[str, list[Arm]] = {}
    for arm in study.chosen(form):
        families.setdefault(arm.group, []).append(arm)
    ours = study.side(primary.arm, form)
    named = study.side(primary.against, form)
    sides = {primary.against: named}
    for family, arms in families.items():
        if arms[0].role in ("baseline", "control") and not any(arm in ours or arm in named for arm in arms):
            sides[family] = arms
    raw = [(name, _contrast(m, ours, arms)) for name, arms in sides.items()]
    adjusted = holm([found[0].p for _, found in raw])
    contrasts = tuple(
        ContrastFinding(primary.arm, name, primary.metric, estimate, p, temperatures)
        for (name, (estimate, temperatures)), p in zip(raw, adjusted, strict=True)
    )
    ks = tuple(k for k in study.evaluation.ks if k <= m.samples)
    chance = _chance(results, ks)
    margin = _margin(m)
    nulls = {arm.name: _null(m, arm) for arm in study.chosen(form) if arm.role == "null"}
    configurations = {family: len(arms) for family, arms in families.items()}
    verdict, reasons = decide(
        study, contrasts, form=form, margin=margin, configurations=configurations, nulls=nulls, ours=ours[0].group
    )
    return Findings(
        verdict=verdict,
        sentence=_sentence(study, contrasts[0], verdict, reasons),
        reasons=tuple(reasons),
        primary=contrasts[0],
        contrasts=contrasts,
        arms=tuple(_arm(m, arm, ks) for arm in study.chosen(form)),
        base=tuple(_rows(m, [results.base_weights_hash], ks)) if results.base_weights_hash else (),
        ks=ks,
        chance=chance,
        margin=margin,
        frontier=tuple(_points(m, study.chosen(form))),
        frontier_k=m.frontier_k,
        configurations=configurations,
        nulls=nulls,
    )


def decide(
    study: Study,
    contrasts: Sequence[ContrastFinding],
    *,
    form: str,
    margin: float | None,
    configurations: dict[str, int],
    nulls: dict[str, str],
    ours: str,
) -> tuple[Verdict, list[str]]:
    """The verdict on the primary contrast (the first), and what keeps it from a higher one."""
    primary = study.primary
    sign = 1 if primary.direction == "higher" else -1
    first = contrasts[0].estimate
    wanted = len(study.seeds_of("full"))
    if first.seeds < FEWEST_SEEDS:
        if form == "quick" and first.seeds:
            return "quick run only", [f"{_seeds(first.seeds)}, quick form: a curve, no evidence"]
        return "not run yet", [f"{first.seeds} of {wanted} seeds have both sides of the contrast"]
    effect = sign * first.value
    if effect <= primary.smallest_effect:
        lower = (
            "of the other sign"
            if effect < 0
            else f"at most the smallest effect of interest, {primary.smallest_effect:g}"
        )
        quick = ["quick form"] if form == "quick" else []
        return "not seen", [f"the effect {_signed(first.value)} is {lower}", *quick]
    reasons = []
    if not _excludes_zero(first, sign):
        reasons.append("the interval includes 0")
    if form == "quick":
        reasons.append("quick form")
    if first.seeds < FEW_SEEDS:
        reasons.append(f"{_seeds(first.seeds)}, {FEW_SEEDS} are needed")
    hardest = min(contrasts, key=lambda c: sign * c.estimate.value if c.estimate.seeds else math.inf)
    if not _excludes_zero(hardest.estimate, sign) or (hardest.p is not None and hardest.p >= LEVEL):
        reasons.append(f"not resolved against the strongest control, {hardest.against}")
    tried = sum(n for family, n in configurations.items() if family == hardest.against) or 1
    if tried < max(2, configurations.get(ours, 1)):
        reasons.append(f"{hardest.against} was not tuned: {tried} of its configurations tried")
    if primary.k and (margin is None or margin < CHANCE_MARGIN):
        found = "is not known" if margin is None else f"is only {margin:.2f} below the base"
        reasons.append(f"chance at k = {primary.k} {found}")
    reasons += [f"the null arm {name} {found}" for name, found in nulls.items() if found.startswith("moved")]
    return ("direction seen" if reasons else "confirmed here"), reasons


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def _excludes_zero(estimate: SeedEstimate, sign: int) -> bool:
    """Whether the interval lies wholly in the claimed direction."""
    bound = estimate.lo if sign > 0 else estimate.hi
    return bound is not None and sign * bound > 0


def _sentence(study: Study, primary: ContrastFinding, verdict: Verdict, reasons: Sequence[str]) -> str:
    e = primary.estimate
    said = f"{verdict[0].upper()}{verdict[1:]}"
    if not e.seeds:
        return f"{said}: {'; '.join(reasons)}."
    interval = f" [{_signed(e.lo)}, {_signed(e.hi)}]" if e.lo is not None and e.hi is not None else ""
    what = f"{primary.metric} of {primary.arm} minus {primary.against}: {_signed(e.value)}{interval}, {_seeds(e.seeds)}"
    if e.problems:
        what += f", {e.problems} problems"
    return f"{said}: {what}{'; ' + '; '.join(reasons) if reasons else ''}."


def _contrast(
    m: _Measured, ours: Sequence[Arm], theirs: Sequence[Arm]
) -> tuple[SeedEstimate, tuple[float | None, float | None]]:
    """(our side minus theirs, the temperatures of both)."""
    if m.study.primary.k is None:
        left, right = _best_metric(m, ours), _best_metric(m, theirs)
        seeds = sorted(set(left) & set(right))
        return over_resampled([left[s] - right[s] for s in seeds], None), (None, None)
    mine = m.chosen_on_validation(ours)
    if m.study.primary.is_frontier:
        return (_above_frontier(m, mine, theirs) if mine else over_resampled((), None)), (
            mine[1] if mine else None,
            None,
        )
    other = m.chosen_on_validation(theirs)
    if mine is None or other is None:
        return over_resampled((), None), (None, None)
    rows = []
    for seed in sorted(set(m.weights(mine[0].name)) & set(m.weights(other[0].name))):
        pair = [
            m.values(m.weights(arm.name)[seed], "test", temperature or 1.0, m.k) for arm, temperature in (mine, other)
        ]
        if pair[0] is not None and pair[1] is not None:
            rows.append([x - y for x, y in zip(pair[0], pair[1], strict=True)])
    return over_seeds(rows), (mine[1], other[1])


def _best_metric(m: _Measured, arms: Sequence[Arm]) -> dict[int, float]:
    """The metric by seed of the family's best arm."""
    sign = 1 if m.study.primary.direction == "higher" else -1
    found = [values for arm in arms if (values := m.metric(arm.name))]
    return max(found, key=lambda values: sign * math.fsum(values.values()) / len(values), default={})


def _above_frontier(m: _Measured, mine: tuple[Arm, float | None], theirs: Sequence[Arm]) -> SeedEstimate:
    """By how much our pass@K lies above their frontier at our pass@1.

    Where we have more pass@1 than any of their points, the frontier goes on at its last height: a point of theirs that
    has less of both counts against them no more than it must. Taking the best of many points favours their side.
    """
    import numpy as np

    arm, temperature = mine
    per_seed, resampled = [], []
    problems = 0
    for seed, weights in sorted(m.weights(arm.name).items()):
        points = [(weights, temperature or 1.0)]
        for other in theirs:
            if seed in m.weights(other.name):
                points += [(m.weights(other.name)[seed], t) for t in m.study.protocol(m.results.form).temperatures]
        measured = [(m.values(w, "test", t, 1), m.values(w, "test", t, m.k)) for w, t in points]
        known = [(x, y) for x, y in measured if x is not None and y is not None]
        if measured[0][0] is None or len(known) < 2:
            continue
        pass1_NP, passk_NP = (np.array([pair[i] for pair in known]) for i in (0, 1))
        problems = pass1_NP.shape[1]
        weights_RP = resampling_weights(problems)
        per_seed.append(_gap(pass1_NP.mean(axis=1), passk_NP.mean(axis=1)))
        boot1_NR, bootk_NR = (values @ weights_RP.T / problems for values in (pass1_NP, passk_NP))
        resampled.append([_gap(boot1_NR[:, r], bootk_NR[:, r]) for r in range(len(weights_RP))])
    return over_resampled(per_seed, lambda: np.array(resampled), problems=problems)


def _gap(x_N: np.ndarray, y_N: np.ndarray) -> float:
    """Height of point 0 above the frontier of the others."""
    import numpy as np

    front = frontier(x_N[1:].tolist(), y_N[1:].tolist())
    return float(y_N[0] - np.interp(x_N[0], [x for x, _ in front], [y for _, y in front]))


def frontier(xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
    """The points that no other beats at both, by rising x (so y falls)."""
    out: list[tuple[float, float]] = []
    for x, y in sorted(zip(xs, ys, strict=True), reverse=True):
        if not out or y > out[-1][1]:
            out.append((x, y))
    return out[::-1]


def _points(m: _Measured, arms: Sequence[Arm]) -> list[Point]:
    """All arms and the base at all temperatures."""
    out = []
    named = [(arm.name, arm.role, list(m.weights(arm.name).values())) for arm in arms]
    for name, role, weights in [(BASE, BASE, [m.results.base_weights_hash]), *named]:
        for temperature in m.study.protocol(m.results.form).temperatures:
            pairs = [
                (m.values(w, "test", temperature, 1), m.values(w, "test", temperature, m.frontier_k)) for w in weights
            ]
            known = [(math.fsum(x) / len(x), math.fsum(y) / len(y)) for x, y in pairs if x and y]
            if known:
                means = [math.fsum(pair[i] for pair in known) / len(known) for i in (0, 1)]
                out.append(Point(name, role, temperature, *means))
    return out


def _rows(m: _Measured, weights: Sequence[str], ks: Sequence[int]) -> list[Row]:
    """Test pass@k at every temperature that was measured, over the seeds' weights."""
    out = []
    for temperature in m.study.protocol(m.results.form).temperatures:
        found = [one for w in weights if (one := m.results.values(w, "test", temperature))]
        if not found:
            continue
        samples = sum(one.samples * len(one.uids) for one, _ in found)
        estimates = tuple(
            over_seeds([pass_at_k_values([(one.samples, c) for c in counts.correct], k) for one, counts in found])
            for k in ks
        )
        out.append(Row(temperature, estimates, sum(counts.truncated for _, counts in found) / samples))
    return out


def _arm(m: _Measured, arm: Arm, ks: Sequence[int]) -> ArmFinding:
    runs = sorted((run for run in m.results.runs if run.arm == arm.name), key=lambda run: run.seed)
    chosen = m.chosen_on_validation([arm])
    spent = {}
    if runs:
        for axis in ("sampled_tokens", "iterations", "optimizer_steps", "device_seconds"):
            spent[axis] = math.fsum(getattr(run, axis) for run in runs) / len(runs)
        for phase in sorted({name for run in runs for name in run.phases}):
            spent[f"iterations ({phase})"] = math.fsum(run.phases.get(phase, 0) for run in runs) / len(runs)
    metric = m.metric(arm.name)
    return ArmFinding(
        name=arm.name,
        title=arm.title,
        role=arm.role,
        family=arm.group,
        seeds=tuple(run.seed for run in runs),
        temperature=chosen[1] if chosen else None,
        rows=tuple(_rows(m, [run.weights_hash for run in runs], ks)),
        spent=spent,
        metric=over_resampled([metric[s] for s in sorted(metric)], None) if metric else None,
    )


def _chance(results: StudyResults, ks: Sequence[int]) -> tuple[float, ...] | None:
    for one in results.sets:
        if one.split == "test" and one.chance is not None:
            return tuple(chance_pass_at_k(one.chance, k) for k in ks)
    return None


def _margin(m: _Measured) -> float | None:
    """Base minus chance at the primary K, at the temperature nearest 1."""
    chance = _chance(m.results, [m.k])
    temperature = nearest_to_one(m.study.protocol(m.results.form).temperatures)
    values = m.values(m.results.base_weights_hash, "test", temperature, m.k)
    return math.fsum(values) / len(values) - chance[0] if values and chance else None


def _null(m: _Measured, arm: Arm) -> str:
    """Whether a null arm did what it must: nothing."""
    weights = m.weights(arm.name)
    if not weights:
        return "not run"
    if set(weights.values()) == {m.results.base_weights_hash}:
        return "silent: the base's weights, bit for bit"
    rows = []
    temperature = nearest_to_one(m.study.protocol(m.results.form).temperatures)
    base = m.values(m.results.base_weights_hash, "test", temperature, m.k)
    for _, digest in sorted(weights.items()):
        values = m.values(digest, "test", temperature, m.k)
        if values and base:
            rows.append([x - y for x, y in zip(values, base, strict=True)])
    found = over_seeds(rows)
    if found.lo is None or found.hi is None:
        return f"not resolved: {_signed(found.value)} to the base, {_seeds(found.seeds)}"
    moved = found.lo > 0 or found.hi < 0
    return f"{'moved' if moved else 'silent'}: {_signed(found.value)} [{_signed(found.lo)}, {_signed(found.hi)}] to the base"
