"""The comparison: which evaluations are held against which, and the lines, groups and sets that follow.

Statistics come from `trainer.contract.intervals` and `trainer.contract.passk` only.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from django.db.models import Q

from trainer.contract.intervals import Estimate, Note, seed_interval
from trainer.contract.passk import k_grid
from webapp.compare.query import BASE, Query
from webapp.core.counts import counted
from webapp.evals import curves
from webapp.evals.models import Evaluation, EvaluationSet
from webapp.evals.selectors import set_differences
from webapp.launch.fields import MISSING, flat
from webapp.launch.names import method_of
from webapp.projects.models import Project
from webapp.runs.models import Run, RunKind

OFFERED_RUNS = 300
ONE_SEED = "one seed: a curve, not evidence that one is better"


@dataclass(frozen=True)
class Value:
    """One number of the table or of a curve. `lo` and `hi` None: no interval, `note` or `reason` says why."""

    value: float | None
    lo: float | None = None
    hi: float | None = None
    note: str = ""
    reason: str = ""

    @classmethod
    def of(cls, estimate: Estimate | None, reason: str = "") -> "Value":
        if estimate is None:
            return cls(None, reason=reason)
        return cls(estimate.value, estimate.lo, estimate.hi, estimate.note)


@dataclass
class Line:
    """A curve: one run, the runs that differ by their seed only, or the base.

    `slot` is its colour on every chart: a number, or "base". `evaluations` belong to `runs` one by one; of the base
    there is one evaluation, and `runs` holds the run that made it. `start` is a single run's start on the same set.
    """

    key: str
    name: str
    slot: int | str
    runs: list[Run]
    evaluations: list[Evaluation]
    members: list["Line"] = field(default_factory=list)
    start: Evaluation | None = None

    @property
    def seeds(self) -> int:
        return len(self.evaluations)

    @property
    def is_base(self) -> bool:
        return self.slot == BASE

    @property
    def first(self) -> Evaluation:
        return self.evaluations[0]

    @property
    def samples(self) -> int:
        """The largest k with an unbiased pass@k."""
        return min(e.samples for e in self.evaluations)

    @property
    def problems(self) -> int:
        return min(len(e.counts["uid"]) for e in self.evaluations)

    @property
    def truncated(self) -> float | None:
        shares = [e.truncated_share for e in self.evaluations]
        known = [share for share in shares if share is not None]
        return sum(known) / len(known) if known else None

    @cached_property
    def ks(self) -> list[int]:
        return k_grid(self.samples) if self.samples else []

    def at(self, k: int) -> Value:
        """pass@k: of one run with its interval over problems, of several seeds with the t interval over seeds."""
        if k > self.samples:
            return Value(
                None, reason=f"n = {counted(self.samples, 'sample')} a problem: pass@{k} has no unbiased estimate"
            )
        if self.seeds == 1:
            return Value.of(curves.pass_at(self.first, k))
        return over_seeds([curves.pass_at(e, k) for e in self.evaluations])


def over_seeds(estimates: Sequence[Estimate | None]) -> Value:
    """Mean over seeds with its t interval; seeds that all agree give no interval, since that would be a false certainty."""
    values = [e.value for e in estimates if e is not None]
    found = seed_interval(values)
    if found is None:
        return Value(values[0] if values else None, note="one seed")
    mean, lo, hi = found
    note: Note = "n too small"
    return Value(mean, note=note) if lo == hi else Value(mean, lo, hi)


@dataclass(frozen=True)
class SetChoice:
    """One evaluation identity among the selected runs, with what tells it from the drawn one."""

    set: EvaluationSet
    runs: list[Run]
    drawn: bool
    differs: list[str]

    @property
    def label(self) -> str:
        s = self.set
        return (
            f"{s.task}, {s.split}, {counted(len(s.problems), 'problem')}, n = {s.n}, T = {s.sampler.get('temperature')}, "
            f"limit {s.sampler.get('max_new_tokens')} tokens, checker {s.checker_version}"
        )


@dataclass
class Comparison:
    """Everything the page shows. `missing` are selected runs without such an evaluation."""

    query: Query
    runs: list[Run]
    unknown: int
    evaluation: str
    names: list[str]
    lines: list[Line]
    bases: list[Line]
    sets: list[SetChoice]
    missing: list[Run]
    baseless: list[Run]
    by: str
    may_group: bool

    @property
    def drawn_sets(self) -> list[EvaluationSet]:
        return [choice.set for choice in self.sets if choice.drawn]

    @property
    def mixed(self) -> bool:
        return len(self.drawn_sets) > 1

    @property
    def all_lines(self) -> list[Line]:
        return [*self.bases, *self.lines]

    @property
    def one_seed(self) -> bool:
        """Whether some line rests on a single run."""
        return any(line.seeds == 1 for line in self.lines)

    @property
    def reference(self) -> Line | None:
        """The line that differences are taken to: the asked one, else the base, else the first."""
        for line in self.all_lines:
            if line.key == self.query.ref:
                return line
        return next(iter(self.all_lines), None) if len(self.all_lines) > 1 else None


def compare(project: Project, query: Query) -> Comparison:
    """The comparison of an address. Runs of other projects are unknown to it."""
    runs = selected(project, query)
    names, chosen = _evaluations(runs, query)
    name = query.evaluation if query.evaluation in names else _best_name(names, chosen)
    picked = chosen.get(name, {})
    sets, drawn = _sets(runs, picked, query)
    kept = [run for run in runs if run.pk in picked and picked[run.pk].set_id in drawn]  # type: ignore[attr-defined]
    by, slots = colours(runs, query)
    starts = _starts(kept, picked)
    bases, baseless, is_base = _bases(kept, picked, starts)
    singles = [
        Line(run.pk, run.name, slots[run.pk], [run], [picked[run.pk]], start=starts.get(run.pk))
        for run in kept
        if run.pk not in is_base
    ]
    return Comparison(
        query=query,
        runs=runs,
        unknown=len(query.runs) - len(runs),
        evaluation=name,
        names=names,
        lines=_groups(singles) if by == "seeds" else singles,
        bases=bases,
        sets=sets,
        missing=[run for run in runs if run.pk not in picked],
        baseless=baseless,
        by=by,
        may_group=groupable(runs),
    )


def selected(project: Project, query: Query) -> list[Run]:
    """The address's runs that are in the project, in its order."""
    found = Run.objects.filter(project=project).select_related("project__team").in_bulk(list(query.runs))
    return [found[pk] for pk in query.runs if pk in found]


def groupable(runs: Sequence[Run]) -> bool:
    """Whether some configuration is there with several seeds."""
    return len({(group_key(run), run.seed) for run in runs}) > len({group_key(run) for run in runs})


def colours(runs: Sequence[Run], query: Query) -> tuple[str, dict[str, int]]:
    """("run" or "seeds", the colour of each run): its place in the selection, or the place of its configuration."""
    by = query.by or ("seeds" if groupable(runs) else "run")
    if by == "run":
        return by, {run.pk: position for position, run in enumerate(runs)}
    order = list(dict.fromkeys(group_key(run) for run in runs))
    return by, {run.pk: order.index(group_key(run)) for run in runs}


def _evaluations(runs: list[Run], query: Query) -> tuple[list[str], dict[str, dict[str, Evaluation]]]:
    """(names of evaluations, {name: {run id: the last or first evaluation}}) of the policy."""
    rows = Evaluation.objects.filter(run__in=runs, retired=False, policy="policy").order_by(
        "iteration", "attempt", "pk"
    )
    ids: dict[tuple[str, str], int] = {}
    for pk, run_id, name in rows.values_list("pk", "run_id", "name"):
        if query.at == "last" or (name, run_id) not in ids:
            ids[name, run_id] = pk
    by_pk = _loaded(ids.values())
    chosen: dict[str, dict[str, Evaluation]] = {}
    for (name, run_id), pk in ids.items():
        chosen.setdefault(name, {})[run_id] = by_pk[pk]
    return sorted(chosen, key=lambda n: (n != "test", n != "validation", n)), chosen


def _best_name(names: list[str], chosen: dict[str, dict[str, Evaluation]]) -> str:
    """The evaluation that most runs have; of equals the final one."""
    return max(names, key=lambda name: len(chosen[name]), default="test")


def _sets(runs: list[Run], picked: dict[str, Evaluation], query: Query) -> tuple[list[SetChoice], set[int]]:
    """The identities among the runs, and the keys of those that are drawn: one, unless the address mixes them."""
    members: dict[int, list[Run]] = {}
    by_id: dict[int, EvaluationSet] = {}
    for run in runs:
        if run.pk in picked:
            one = picked[run.pk].set
            by_id[one.pk] = one
            members.setdefault(one.pk, []).append(run)
    if not by_id:
        return [], set()
    asked = next((pk for pk, one in by_id.items() if one.uid == query.set), None)
    first = asked if asked is not None else max(by_id, key=lambda pk: len(members[pk]))
    drawn = set(by_id) if query.mix else {first}
    choices = [
        SetChoice(one, members[pk], pk in drawn, set_differences(by_id[first], one)) for pk, one in by_id.items()
    ]
    return choices, drawn


def group_key(run: Run) -> str:
    """Equal for runs whose configurations differ by the seed at most."""
    return json.dumps({name: value for name, value in run.config.items() if name != "seed"}, sort_keys=True)


def _groups(singles: list[Line]) -> list[Line]:
    """Lines of equal configuration and set together, in the order and colour of their first. Equal seeds are one run."""
    found: dict[tuple[str, int], list[Line]] = {}
    for line in singles:
        found.setdefault((group_key(line.runs[0]), line.first.set_id), []).append(line)  # type: ignore[attr-defined]
    out = []
    for lines in found.values():
        by_seed = {line.runs[0].seed: line for line in lines}
        members = [by_seed[seed] for seed in sorted(by_seed)]
        if len(members) == 1:
            out.append(members[0])
            continue
        runs = [line.runs[0] for line in members]
        name = f"{group_name(runs[0])}, {counted(len(runs), 'seed')}"
        out.append(Line(f"seeds-{members[0].key}", name, lines[0].slot, runs, [one.first for one in members], members))
    return out


def group_name(run: Run) -> str:
    """The name without what the launch form writes about the seed."""
    return run.name.removesuffix(f" · seed {run.seed}")


def _starts(kept: list[Run], picked: dict[str, Evaluation]) -> dict[str, Evaluation]:
    """For each run the evaluation of the weights it started from, on the set of its picked one, as far as there is one.

    The rule is that of `webapp.evals.selectors.start_of`, in a fixed number of queries for all runs: the run's own at
    iteration 0, else any in the project of the same weights on the same set.
    """
    light = Evaluation.objects.filter(retired=False)
    at_zero = light.filter(run__in=kept, iteration=0).order_by("-pk").values_list("run_id", "weights_hash")
    first_hash = dict(at_zero)
    wanted: dict[str, int] = {}
    on_sets: dict[tuple[int, str], list[int]] = {}
    own: dict[tuple[str, int], int] = {}
    set_ids = {picked[run.pk].set_id for run in kept}  # type: ignore[attr-defined]
    rows = light.filter(set__in=set_ids).order_by("attempt", "pk")
    for pk, run_id, iteration, set_id, digest in rows.values_list(
        "pk", "run_id", "iteration", "set_id", "weights_hash"
    ):
        on_sets.setdefault((set_id, digest), []).append(pk)
        if iteration == 0:
            own[run_id, set_id] = pk
    for run in kept:
        now = picked[run.pk]
        set_id = now.set_id  # type: ignore[attr-defined]
        same = [pk for pk in on_sets.get((set_id, first_hash.get(run.pk, "")), []) if pk != now.pk]
        found = own.get((run.pk, set_id)) or (min(same) if same else None)
        if found is not None:
            wanted[run.pk] = found
    loaded = _loaded(wanted.values(), {e.set_id: e.set for e in picked.values()})  # type: ignore[attr-defined]
    return {run_id: loaded[pk] for run_id, pk in wanted.items()}


def _loaded(ids: Iterable[int], sets: dict[int, EvaluationSet] | None = None) -> dict[int, Evaluation]:
    """Evaluations without their answers; those on one set share its object, whose problems are read once."""
    found = Evaluation.objects.filter(pk__in=set(ids)).select_related("run__project__team").defer("answers").in_bulk()
    known = dict(sets or {})
    missing = {e.set_id for e in found.values()} - set(known)  # type: ignore[attr-defined]
    known |= EvaluationSet.objects.in_bulk(missing)
    for evaluation in found.values():
        evaluation.set = known[evaluation.set_id]  # type: ignore[attr-defined]
    return found


def _bases(
    kept: list[Run], picked: dict[str, Evaluation], starts: dict[str, Evaluation]
) -> tuple[list[Line], list[Run], set[str]]:
    """(lines of the base weights on the same sets, runs without one, ids of runs that only evaluate a base)."""
    trained = [run for run in kept if run.kind != RunKind.EVALUATE]
    found: dict[tuple[int, str], Evaluation] = {}
    for run in trained:
        if run.pk in starts:
            start = starts[run.pk]
            found.setdefault((start.set_id, start.weights_hash), start)  # type: ignore[attr-defined]
    only = {run.pk for run in kept if (picked[run.pk].set_id, picked[run.pk].weights_hash) in found}  # type: ignore[attr-defined]
    sets = {start.set_id for start in found.values()}  # type: ignore[attr-defined]
    lines = []
    for position, start in enumerate(found.values()):
        name = "base" if len(found) == 1 else f"base {position + 1}"
        if len(sets) > 1:
            name += f", T = {start.set.sampler.get('temperature')}"
        key = BASE if position == 0 else f"{BASE}-{position + 1}"
        lines.append(Line(key, name, BASE, [start.run], [start], start=start))
    return lines, [run for run in trained if run.pk not in starts], only


# The picker


def offered(project: Project, query: Query) -> list[tuple[Run, str, bool]]:
    """(run, method, selected) of what the page offers: the selected ones first, then the newest with an evaluation."""
    rows = list(
        Run.objects.filter(project=project)
        .filter(Q(evaluations__isnull=False) | Q(pk__in=query.runs))
        .distinct()
        .only("pk", "name", "kind", "methods", "seed", "state", "created_at", "config", "project_id")
        .order_by("-created_at")[:OFFERED_RUNS]
    )
    chosen = set(query.runs)
    labelled = [(run, method_of(run), run.pk in chosen) for run in rows]
    return sorted(labelled, key=lambda row: not row[2])


# Configurations


def config_differences(runs: Sequence[Run], *, by: str = "run") -> tuple[list[Run], list[tuple[str, list[Any]]]]:
    """(runs, (dotted path, value of each of them)) where the configurations are not all equal.

    By seeds, one run stands for its configuration and the seed is left out. The parameters of a method stand there only
    when all the runs use it; MISSING where a run has no such path.
    """
    shown = list({group_key(run): run for run in reversed(runs)}.values())[::-1] if by == "seeds" else list(runs)
    flats = [_comparable(run, seed=by != "seeds") for run in shown]
    out = []
    for path in sorted({path for one in flats for path in one}):
        values = [one.get(path, MISSING) for one in flats]
        if path.startswith("methods.") and MISSING in values:
            continue
        if len({json.dumps(value, sort_keys=True, default=str) for value in values}) > 1:
            out.append((path, values))
    return shown, out


def _comparable(run: Run, *, seed: bool) -> dict[str, Any]:
    config = {name: value for name, value in run.config.items() if seed or name != "seed"}
    methods = {str(choice["slug"]): choice.get("params", {}) for choice in config.pop("methods", None) or []}
    out = flat(config)
    for slug, params in methods.items():
        out |= {f"methods.{slug}.{name}": value for name, value in params.items()}
    return {**out, "methods": ", ".join(methods) or None}
