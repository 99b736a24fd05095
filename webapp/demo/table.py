"""The demo's result in text: pass@k with intervals, entropy, effective numbers, and one honest line."""

from dataclasses import dataclass

from trainer.contract.intervals import Estimate
from webapp.core.counts import counted
from webapp.evals import curves
from webapp.evals.models import Evaluation
from webapp.evals.selectors import latest
from webapp.runs.models import Run

KS = (1, 4, 16, 64)


@dataclass(frozen=True)
class Arm:
    """A row of the table: what it is called, and its test evaluation."""

    title: str
    evaluation: Evaluation


def arms_of(runs: dict[str, Run]) -> list[Arm]:
    """Base, GRPO, GRPO sampled hotter, SPS: those that have a test evaluation."""
    out = []
    for key, title in (("base", "base"), ("grpo", "GRPO"), ("hot", "GRPO, T = {t:g}"), ("sps", "SPS")):
        evaluation = latest(runs[key], "test") if key in runs else None
        if evaluation is not None:
            out.append(Arm(title.format(t=evaluation.set.sampler["temperature"]), evaluation))
    return out


def render(arms: list[Arm]) -> str:
    """The table. Intervals are 95 % BCa over problems; one run an arm."""
    base = arms[0].evaluation
    lines = [
        f"{counted(len(base.pairs), 'test problem')} of {base.set.task}, n = {counted(base.samples, 'sample')} each, T = "
        f"{base.set.sampler['temperature']:g} unless stated; one seed; 95 % intervals over problems",
        "",
        f"{'':16}" + "".join(f"{f'pass@{k}':>23}" for k in KS) + f"{'entropy':>10}{'eff. correct':>24}",
    ]
    chance = curves.chance_curve(base.set, KS)
    if chance is not None:
        lines.append(f"{'chance':16}" + "".join(f"{_rate(c):>23}" for c in chance))
    for arm in arms:
        cells = "".join(f"{_estimate(curves.pass_at(arm.evaluation, k)):>23}" for k in KS)
        effective = curves.effective(arm.evaluation, base) if arm.evaluation.pk != base.pk else None
        entropy = arm.evaluation.token_entropy
        shown = "—" if entropy is None else f"{entropy:.3f}"
        lines.append(f"{arm.title:16}{cells}{shown:>10}{_effective(effective):>24}")
    lines += [
        "",
        "entropy: exact, nats per token. eff. correct: 1/Σp² over distinct correct solutions, base → arm, on problems",
        "with at least two correct samples in both.",
    ]
    return "\n".join(lines)


def conclusion(arms: list[Arm]) -> str:
    """What the differences to the base say, and what one seed cannot say."""
    base, rest = arms[0].evaluation, arms[1:]
    said = [f"{arm.title} {_against(arm.evaluation, base)}" for arm in rest]
    return "Against the base, " + "; ".join(said) + ". One seed each: this cannot say which method is better."


def _against(now: Evaluation, base: Evaluation) -> str:
    words = []
    for k in (1, 64):
        difference = curves.difference(now, base, k)
        if difference is None:
            continue
        bounds = "" if difference.lo is None else f" [{difference.lo:+.3f}, {difference.hi:+.3f}]"
        settled = difference.lo is not None and difference.hi is not None and (difference.lo > 0 or difference.hi < 0)
        verb = ("raised" if difference.value > 0 else "lowered") if settled else "did not measurably change"
        words.append(f"{verb} pass@{k} ({difference.value:+.3f}{bounds})")
    return " and ".join(words)


def _estimate(estimate: Estimate | None) -> str:
    if estimate is None:
        return "—"
    if estimate.lo is None or estimate.hi is None:
        return f"{_rate(estimate.value)} ({estimate.note})"
    return f"{_rate(estimate.value)} [{_rate(estimate.lo)}, {_rate(estimate.hi)}]"


def _rate(value: float) -> str:
    return f"{value:.3f}"


def _effective(numbers: curves.Effective | None) -> str:
    if numbers is None:
        return "—"
    return f"{numbers.start.value:.2f} → {numbers.now.value:.2f} (P = {numbers.problems})"
