"""Reads of studies: what their runs have measured so far, and the grid of arms and seeds."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from django.core.cache import cache
from django.db.models import Count, QuerySet
from django.shortcuts import get_object_or_404

from trainer.contract.findings import Findings, findings
from trainer.contract.results import CountRecord, RunRecord, SetRecord, StudyResults, digest, study_hash
from trainer.contract.study import Arm
from webapp.checkpoints.models import Checkpoint
from webapp.evals.models import Evaluation
from webapp.metrics.models import AxisRow
from webapp.metrics.selectors import latest_values
from webapp.projects.models import Project
from webapp.runs.models import Run
from webapp.runs.states import RunState
from webapp.studies.models import Member, Study

KEPT_SECONDS = 7 * 24 * 3600
VERSION = 1  # of the rules: another number forgets what is cached


def studies_in(project: Project) -> QuerySet[Study]:
    """The project's studies, newest first, with the number of their runs."""
    return Study.objects.filter(project=project).annotate(runs=Count("members")).order_by("-created_at", "-pk")


def study_in(project: Project, pk: int) -> Study:
    """Raises Http404."""
    return get_object_or_404(Study.objects.select_related("project__team"), project=project, pk=pk)


@dataclass(frozen=True)
class Cell:
    """One arm with one seed: its training run and the run that measures it; None while there is none."""

    seed: int
    train: Run | None
    measure: Run | None


@dataclass(frozen=True)
class GridRow:
    """One arm; `slot` is its colour on every figure."""

    arm: Arm
    slot: int
    cells: list[Cell]


@dataclass(frozen=True)
class Grid:
    """Arms × seeds. `moving`: something runs or waits."""

    seeds: tuple[int, ...]
    rows: list[GridRow]
    others: list[Run]
    moving: bool
    done: int
    total: int


def grid(study: Study) -> Grid:
    """How far every run is."""
    form: Any = study.form
    members = members_of(study)
    place = {(member.part, member.arm, member.seed): member.run for member in members}
    seeds = study.contract.seeds_of(form)
    train, measure = Member.Part.TRAIN, Member.Part.MEASURE
    rows = [
        GridRow(
            arm,
            slot,
            [Cell(s, place.get((train, arm.name, s)), place.get((measure, arm.name, s))) for s in seeds],
        )
        for slot, arm in enumerate(study.contract.chosen(form))
    ]
    cells = [cell for row in rows for cell in row.cells]
    return Grid(
        seeds=seeds,
        rows=rows,
        others=[member.run for member in members if not member.arm],
        moving=study.open or any(not member.run.is_over for member in members),
        done=sum(cell.measure is not None and cell.measure.state == RunState.FINISHED for cell in cells),
        total=len(cells),
    )


def members_of(study: Study) -> list[Member]:
    """With their runs, in the order in which they were launched."""
    return list(study.members.select_related("run__project__team"))


def results_of(study: Study) -> StudyResults:
    """What the study's runs have measured, in the form that the command line writes too."""
    form: Any = study.form
    members = members_of(study)
    finals = _finals([member.run for member in members if member.part == Member.Part.TRAIN])
    measuring = [member.run.pk for member in members if member.part == Member.Part.MEASURE]
    base = [member.run.pk for member in members if member.part == Member.Part.MEASURE and not member.arm]
    evaluations = Evaluation.objects.filter(run__in=measuring, retired=False).prefetch_related("set").defer("answers")
    sets: dict[str, SetRecord] = {}
    counts: dict[tuple[str, str], CountRecord] = {}
    base_hash = ""
    for one in evaluations.order_by("attempt", "pk"):
        if one.run_id in base:  # type: ignore[attr-defined]
            base_hash = one.weights_hash
        sets[one.set.uid] = _set_record(one)
        counts[one.weights_hash, one.set.uid] = CountRecord(
            weights_hash=one.weights_hash,
            set_id=one.set.uid,
            correct=tuple(one.counts["c"]),
            truncated=sum(one.counts["truncated"]),
        )
    metric = study.contract.primary.metric if study.contract.primary.k is None else ""
    logged = latest_values([member.run for member in members], [metric]) if metric else {}
    runs = [
        _run_record(member, finals[member.run.pk], logged.get(member.run.pk, {}).get(metric))
        for member in members
        if member.part == Member.Part.TRAIN and member.run.pk in finals
    ]
    return StudyResults(
        slug=study.slug,
        form=form,
        study_hash=study_hash(study.contract, form),
        base_weights_hash=base_hash,
        runs=tuple(runs),
        sets=tuple(sets.values()),
        counts=tuple(counts.values()),
    )


def _finals(runs: list[Run]) -> dict[str, Checkpoint]:
    finished = [run.pk for run in runs if run.state == RunState.FINISHED]
    rows = Checkpoint.objects.filter(run__in=finished, final=True, retired=False).order_by("iteration")
    return {str(row.run_id): row for row in rows}  # type: ignore[attr-defined]


def _set_record(one: Evaluation) -> SetRecord:
    chance = [problem.get("chance") for problem in one.set.problems]
    known = [c for c in chance if c is not None]
    return SetRecord(
        id=one.set.uid,
        split="test" if one.set.split == "test" else "validation",
        temperature=one.set.sampler["temperature"],
        samples=one.set.n,
        uids=tuple(one.counts["uid"]),
        chance=tuple(known) if len(known) == len(chance) else None,
    )


def _run_record(member: Member, final: Checkpoint, metric: Any) -> RunRecord:
    places = AxisRow.objects.filter(run=member.run, iteration__gte=1, iteration__lte=final.iteration or 0)
    names = ("iteration", "phase", "optimizer_step", "sampled_tokens", "device_seconds")
    # Of an iteration that was repeated after a stop, the newest attempt counts.
    newest = {row[0]: row for row in places.order_by("iteration", "attempt").values_list(*names)}
    last = newest[max(newest)] if newest else (0, "", 0, 0, 0.0)
    return RunRecord(
        arm=member.arm,
        seed=member.seed,
        weights_hash=final.weights_hash,
        iterations=final.iteration or 0,
        optimizer_steps=last[2],
        sampled_tokens=last[3],
        device_seconds=last[4],
        phases=dict(Counter(row[1] for row in newest.values())),
        metric=metric.last_value if metric is not None else None,
    )


def findings_of(study: Study) -> Findings:
    """By the contract's rules; kept in the cache under the digest of the numbers."""
    results = results_of(study)
    numbers = digest({"results": results.model_dump(mode="json"), "study": study.document})
    key = f"studies:{VERSION}:{numbers}"
    found: Findings = cache.get_or_set(key, lambda: findings(study.contract, results), KEPT_SECONDS)  # type: ignore[assignment]
    return found
