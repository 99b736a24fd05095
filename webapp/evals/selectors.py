"""Reads of evaluations, for one run: what the charts and the verdict line are made of."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from trainer.contract.intervals import Estimate
from webapp.core.counts import counted
from webapp.evals import curves
from webapp.evals.models import Evaluation, EvaluationSet
from webapp.runs.models import Run

STEP = 4  # of the ks that are drawn over iterations: 1, 4, 16, ...


def evaluations_of(run: Run, name: str | None = None) -> list[Evaluation]:
    """Evaluations that still count, by iteration, without the answers; of an iteration the newest attempt's."""
    # Prefetched, so that the set's problems are decoded once and not with each evaluation.
    rows = Evaluation.objects.filter(run=run, retired=False).prefetch_related("set").defer("answers")
    if name is not None:
        rows = rows.filter(name=name)
    newest = {(e.name, e.policy, e.set_id, e.iteration): e for e in rows.order_by("iteration", "attempt", "pk")}
    return list(newest.values())


def names_of(run: Run) -> list[str]:
    """Names of the run's evaluations."""
    return list(
        Evaluation.objects.filter(run=run, retired=False).order_by("name").values_list("name", flat=True).distinct()
    )


def evaluations_on(set_ids: list[int], runs: QuerySet[Run] | list[Run]) -> QuerySet[Evaluation]:
    """Evaluations of these runs on these sets (primary keys of `EvaluationSet`), for comparisons."""
    rows = Evaluation.objects.filter(set__in=set_ids, run__in=runs, retired=False)
    return rows.prefetch_related("set", "run").defer("answers").order_by("run", "iteration", "attempt", "pk")


def latest(run: Run, name: str) -> Evaluation | None:
    """The newest evaluation of that name."""
    found = evaluations_of(run, name)
    return found[-1] if found else None


def start_of(run: Run, now: Evaluation) -> Evaluation | None:
    """The evaluation of the run's start on the same set as `now`, or None.

    It is the run's own at iteration 0. A final evaluation has none, because the test split is touched once: then
    another run's evaluation of the very weights that this run started from serves, on the same set in the same
    project.
    """
    if now.iteration == 0:
        return None  # it is the start
    on_set = Evaluation.objects.filter(set=now.set, retired=False).select_related("set").defer("answers")
    own = on_set.filter(run=run, iteration=0, policy=now.policy).exclude(pk=now.pk).order_by("-attempt").first()
    if own is not None:
        return own
    first = (
        Evaluation.objects.filter(run=run, retired=False, iteration=0).values_list("weights_hash", flat=True).first()
    )
    if first is None:
        return None
    return on_set.filter(weights_hash=first).exclude(pk=now.pk).order_by("pk").first()


def ks_over_iterations(samples: int) -> list[int]:
    """1, 4, 16, ... up to n."""
    ks = []
    k = 1
    while k <= samples:
        ks.append(k)
        k *= STEP
    return ks


@dataclass(frozen=True)
class Progress:
    """pass@k over iterations for each of `ks`; `estimates[i][j]` belongs to `ks[i]` and `iterations[j]`."""

    set_id: int
    iterations: list[int]
    ks: list[int]
    estimates: list[list[Estimate | None]]
    chance: list[float] | None


def passk_over_iterations(run: Run, name: str = "validation") -> Progress | None:
    """pass@k with intervals over the run, on the set of its newest evaluation; None without evaluations.

    Evaluations on another set (the settings were edited) are left out: they are not comparable.
    """
    found = evaluations_of(run, name)
    if not found:
        return None
    same = [e for e in found if e.set_id == found[-1].set_id and e.policy == found[-1].policy]
    ks = ks_over_iterations(min(e.samples for e in same))
    return Progress(
        set_id=found[-1].set_id,
        iterations=[e.iteration for e in same],
        ks=ks,
        estimates=[[curves.pass_at(e, k) for e in same] for k in ks],
        chance=curves.chance_curve(found[-1].set, ks),
    )


def effective_over_iterations(run: Run, name: str = "validation") -> list[tuple[int, curves.Effective]]:
    """(iteration, effective numbers against the start) for each evaluation after the start that shares solved
    problems with it.
    """
    found = evaluations_of(run, name)
    if not found:
        return []
    start = start_of(run, found[-1])
    if start is None:
        return []
    out = []
    for evaluation in found:
        if evaluation.set_id != start.set_id or evaluation.pk == start.pk:
            continue
        numbers = curves.effective(evaluation, start)
        if numbers is not None:
            out.append((evaluation.iteration, numbers))
    return out


def problem_rows(evaluation: Evaluation, start: Evaluation | None = None) -> list[dict[str, Any]]:
    """The set's problems with what happened to them: uid, text, answer, chance, n, c, truncated, answers, start_c,
    start_n.
    """
    known = {problem["uid"]: problem for problem in evaluation.set.problems}
    rows = []
    for position, uid in enumerate(evaluation.counts["uid"]):
        problem = known.get(uid, {})
        before = start.by_uid.get(uid) if start else None
        rows.append(
            {
                "uid": uid,
                "text": problem.get("text", ""),
                "answer": problem.get("answer"),
                "chance": problem.get("chance"),
                "n": evaluation.counts["n"][position],
                "c": evaluation.counts["c"][position],
                "truncated": evaluation.counts["truncated"][position],
                "answers": evaluation.answers[position],
                "start_n": before["n"] if before else None,
                "start_c": before["c"] if before else None,
            }
        )
    return rows


def results_of(uid: str, evaluations: Sequence[Evaluation]) -> dict[int, tuple[int, list[Any], list[int]]]:
    """{primary key: (n, answers, counts of distinct right solutions)} of one problem, where the evaluation has it."""
    rows = Evaluation.objects.filter(pk__in=[e.pk for e in evaluations]).values_list("pk", "counts", "answers")
    out = {}
    for pk, counts, answers in rows:
        if uid in counts["uid"]:
            place = counts["uid"].index(uid)
            out[pk] = (counts["n"][place], answers[place], counts["forms"][place])
    return out


def event_of(evaluation: Evaluation) -> dict[str, Any]:
    """The fields of the contract's evaluation event that say what was measured, and how; without axes and set."""
    columns = [evaluation.counts[name] for name in ("uid", "n", "c", "truncated", "forms")]
    return {
        "name": evaluation.name,
        "policy": evaluation.policy,
        "set_id": evaluation.set.uid,
        "weights_hash": evaluation.weights_hash,
        "seed": evaluation.seed,
        "engine": evaluation.engine,
        "tokens": evaluation.tokens,
        "fingerprint": evaluation.fingerprint,
        "mean_length": evaluation.mean_length,
        "token_entropy": evaluation.token_entropy,
        "problems": [
            {
                "uid": uid, "n": n, "c": c, "truncated": truncated, "correct_forms": forms,
                "answers": [{"key": key, "count": count, "correct": correct} for key, count, correct in answers],
            }
            for (uid, n, c, truncated, forms), answers in zip(
                zip(*columns, strict=True), evaluation.answers, strict=True
            )
        ],
    }  # fmt: skip


def sets_of(run: Run) -> dict[str, list[EvaluationSet]]:
    """{name of an evaluation: its sets, in the order in which the run used them}. More than one are not comparable."""
    rows = Evaluation.objects.filter(run=run, retired=False, policy="policy").order_by("iteration", "attempt", "pk")
    ids: dict[str, list[int]] = {}
    for name, pk in rows.values_list("name", "set_id"):
        if pk not in ids.setdefault(name, []):
            ids[name].append(pk)
    several = {pk for found in ids.values() if len(found) > 1 for pk in found}
    # The problems of a set are large: they are read only where there is something to compare.
    sets = EvaluationSet.objects.in_bulk(several) if several else {}
    return {name: [sets[pk] for pk in found] for name, found in ids.items() if len(found) > 1}


def first_on(run: Run, the_set: EvaluationSet) -> int | None:
    """The iteration of the run's first evaluation on the set."""
    rows = Evaluation.objects.filter(run=run, set=the_set, retired=False).order_by("iteration")
    return rows.values_list("iteration", flat=True).first()


def set_differences(a: EvaluationSet, b: EvaluationSet) -> list[str]:
    """In words, what makes two identities two."""
    out = []
    for title, left, right in (
        ("task", a.task, b.task),
        ("split", a.split, b.split),
        ("checker", a.checker_version, b.checker_version),
        ("samples a problem", a.n, b.n),
        *(
            (name.replace("_", " "), a.sampler.get(name) or None, b.sampler.get(name) or None)
            for name in sorted({*a.sampler, *b.sampler})
        ),
    ):
        if left != right:
            out.append(f"{title} {right} instead of {left}")
    left_uids, right_uids = ({problem["uid"] for problem in one.problems} for one in (a, b))
    if left_uids != right_uids:
        out.append(f"{counted(len(right_uids), 'problem')}, {len(left_uids & right_uids)} of them shared")
    return out


# JSON for the charts


def estimate_json(estimate: Estimate | None) -> dict[str, Any] | None:
    """value, lo, hi, problems, note; a value that is not finite is null with its name in `nonfinite`."""
    if estimate is None:
        return None
    value = estimate.value
    out: dict[str, Any] = {"lo": estimate.lo, "hi": estimate.hi, "problems": estimate.problems, "note": estimate.note}
    if math.isfinite(value):
        return {"value": value, **out}
    return {"value": None, "nonfinite": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf", **out}


def curve_json(evaluation: Evaluation) -> dict[str, Any]:
    """One pass@k curve: identity, ks, estimates, chance."""
    found = curves.curve(evaluation)
    return {
        "id": evaluation.pk,
        "run": evaluation.run_id,
        "name": evaluation.name,
        "iteration": evaluation.iteration,
        "set": evaluation.set.uid,
        "task": evaluation.set.task,
        "split": evaluation.set.split,
        "temperature": evaluation.set.sampler.get("temperature"),
        "n": evaluation.samples,
        "problems": len(evaluation.counts["uid"]),
        "weights_hash": evaluation.weights_hash,
        "token_entropy": evaluation.token_entropy,
        "mean_length": evaluation.mean_length,
        "truncated": evaluation.truncated_share,
        "ks": found.ks,
        "estimates": [estimate_json(e) for e in found.estimates],
        "chance": found.chance,
    }


def progress_json(run: Run, name: str = "validation") -> dict[str, Any] | None:
    """pass@k over iterations."""
    found = passk_over_iterations(run, name)
    if found is None:
        return None
    return {
        "iterations": found.iterations,
        "ks": found.ks,
        "series": [[estimate_json(e) for e in row] for row in found.estimates],
        "chance": found.chance,
    }


def effective_json(run: Run, name: str = "validation") -> list[dict[str, Any]]:
    """Effective number of correct trajectories over iterations, with the start's on the same problems."""
    return [
        {
            "iteration": iteration,
            "now": estimate_json(numbers.now),
            "start": estimate_json(numbers.start),
            "problems": numbers.problems,
            "falls": numbers.falls,
        }
        for iteration, numbers in effective_over_iterations(run, name)
    ]
