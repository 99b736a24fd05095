"""Whether a run came through the storm: sentences about everything that is not as it must be; none is a pass."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tests.storm.record import file_digest, read_part, whole_record_of
from tests.storm.replay import Expected, replay
from webapp.checkpoints.models import Checkpoint
from webapp.evals.models import Evaluation
from webapp.metrics.models import AxisRow, Point, Series
from webapp.metrics.selectors import axes_at, last_point
from webapp.metrics.services import AXIS_COLUMNS
from webapp.rollouts.models import RolloutPart
from webapp.runs.models import Attempt, EventRow, Run
from webapp.runs.selectors import cuts
from webapp.runs.states import TRANSITIONS, RunState
from webapp.runs.storage import read

SHOWN = 4
# A stop saves where it comes, so a stormy run has checkpoints that an undisturbed one lacks.
MAY_HAVE_MORE = ("checkpoints",)


def faults_of(run: Run, undisturbed: Mapping[str, Any]) -> list[str]:
    """Everything wrong with a run that should have ended as the undisturbed record of the same document."""
    if run.state != RunState.FINISHED:
        return [f"it is {run.state}, expected finished: {run.message}"]
    try:
        found = json.loads(json.dumps(whole_record_of(run)))
    except OSError as error:
        return [f"a file of it cannot be read: {error}"]
    if "0" in found["axes"] and "0" not in undisturbed["axes"] and _was_saved_at_the_start(run):
        del found["axes"]["0"]
    return [*differences(undisturbed, found), *inconsistencies(run)]


def _was_saved_at_the_start(run: Run) -> bool:
    """A stop before the first iteration saves iteration 0, and tells where that lies on the axes."""
    return run.checkpoints.filter(iteration=0).exists()


def differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Where two whole records differ, part by part, the first few places of each."""
    told = []
    for part in expected:
        wanted, there = expected[part], found[part]
        if part in MAY_HAVE_MORE:
            there = {key: value for key, value in there.items() if key in wanted}
        places = list(_differing(part, wanted, there))
        told += places[:SHOWN]
        if len(places) > SHOWN:
            told.append(f"{part}: {len(places) - SHOWN} more differences")
    return told


def _differing(place: str, wanted: Any, there: Any) -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(there, dict):
        for key in [*wanted, *(key for key in there if key not in wanted)]:
            if key not in there:
                yield f"{place}[{key}] is missing"
            elif key not in wanted:
                yield f"{place}[{key}] is there, but not in the undisturbed run"
            else:
                yield from _differing(f"{place}[{key}]", wanted[key], there[key])
    elif isinstance(wanted, list) and isinstance(there, list) and len(wanted) == len(there):
        for index, (one, other) in enumerate(zip(wanted, there, strict=True)):
            yield from _differing(f"{place}[{index}]", one, other)
    elif wanted != there:
        yield f"{place}: {_short(there)}, expected {_short(wanted)}"


def _short(value: Any) -> str:
    text = repr(value)
    more = f" ({len(value)} entries)" if isinstance(value, list) else ""
    return text if len(text) <= 160 else text[:160] + "…" + more


def inconsistencies(run: Run) -> list[str]:
    """Where the run's rows, event files and other files contradict each other, and gaps."""
    expected = replay(run)
    return [
        *expected.faults,
        *_attempts(run, expected),
        *_transitions(run),
        *_metrics(run, expected),
        *_iterations(run),
        *_evaluations(run, expected),
        *_rollouts(run, expected),
        *_checkpoints(run, expected),
        *_events(run, expected),
    ]


def _attempts(run: Run, expected: Expected) -> Iterator[str]:
    attempts: list[Attempt] = list(run.attempts.order_by("number"))
    if [one.number for one in attempts] != list(range(1, run.attempt_number + 1)):
        yield f"attempts {[one.number for one in attempts]}, expected 1 to {run.attempt_number}"
    for attempt in attempts:
        name = f"attempt {attempt.number}"
        current = attempt.number == run.attempt_number
        if attempt.superseded == current:
            yield f"{name} is {'' if attempt.superseded else 'not '}superseded"
        if attempt.claim or attempt.ended_at is None:
            yield f"{name} has not ended: claim {attempt.claim!r}, ended at {attempt.ended_at}"
        if attempt.kept_until != expected.kept_until(attempt.number):
            yield f"{name} counts up to {attempt.kept_until}, expected {expected.kept_until(attempt.number)}"
        if current and attempt.number in expected.unread:
            yield f"{name}: {expected.unread[attempt.number]} lines of events.jsonl are not in the database"
        if attempt.last_seq != expected.last_seq[attempt.number]:
            yield f"{name}: last seq {attempt.last_seq}, in the file {expected.last_seq[attempt.number]}"


def _transitions(run: Run) -> Iterator[str]:
    before = ""
    for step in run.transitions.order_by("pk"):
        allowed = TRANSITIONS[RunState(step.source)] if step.source else {RunState.QUEUED}
        if step.source != before or step.target not in allowed:
            yield f"transition {step.source or 'nothing'} → {step.target} after {before or 'nothing'}"
        before = step.target
    if before != run.state:
        yield f"the last transition leads to {before}, the run is {run.state}"


def _metrics(run: Run, expected: Expected) -> Iterator[str]:
    rows = Point.objects.filter(series__run=run).values_list(
        "series__key", "iteration", "attempt", "value", "nonfinite"
    )
    points = {(key, iteration, attempt): (value, flag) for key, iteration, attempt, value, flag in rows}
    yield from _compared("point", expected.points, points)
    axes = {
        (row["iteration"], row["attempt"]): {name: row[name] for name in AXIS_COLUMNS}
        for row in AxisRow.objects.filter(run=run).values("iteration", "attempt", *AXIS_COLUMNS)
    }
    wanted = {key: {name: row[name] for name in AXIS_COLUMNS if name in row} for key, row in expected.axes.items()}
    yield from _compared("axes", wanted, axes)
    visible = cuts(run.pk)
    for series in Series.objects.filter(run=run):
        last = last_point(series.pk, visible)
        newest = (last.iteration, last.attempt, last.value) if last else (None, None, None)
        kept = (series.last_iteration, series.last_attempt, series.last_value)
        if kept != newest:
            yield f"series {series.key}: its newest value is kept as {kept}, the newest point is {newest}"


def _iterations(run: Run) -> Iterator[str]:
    found = sorted(axes_at(run))
    first = 0 if run.kind == "rl" or (0 in found and _was_saved_at_the_start(run)) else 1
    wanted = list(range(first, run.config["budget"]["iterations"] + 1))
    if found != wanted:
        missing, extra = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
        yield f"live iterations are not {first} to {wanted[-1]}: missing {missing}, beyond {extra}"


def _evaluations(run: Run, expected: Expected) -> Iterator[str]:
    found = {}
    for one in Evaluation.objects.filter(run=run).select_related("set"):
        counts = [list(row) for row in zip(one.counts["uid"], one.counts["n"], one.counts["c"], strict=True)]
        key = (one.attempt, one.iteration, one.name, one.policy, one.set.uid)
        found[key] = (one.weights_hash, counts, one.retired)
    wanted = {key: (*told, expected.retired(key[0], key[1])) for key, told in expected.evaluations.items()}
    yield from _compared("evaluation", wanted, found)


def _rollouts(run: Run, expected: Expected) -> Iterator[str]:
    found = {}
    for part in RolloutPart.objects.filter(run=run).prefetch_related("groups"):
        groups = [[g.uid, g.n, g.c, g.first_row, g.mean_reward] for g in part.groups.all()]
        found[part.attempt, part.uri] = (part.iteration, part.rows, groups, part.retired)
        if not part.retired:
            yield from _part_file(part, groups)
    wanted = {key: (*told, expected.retired(key[0], told[0])) for key, told in expected.parts.items()}
    yield from _compared("rollout part", wanted, found)


def _part_file(part: RolloutPart, groups: list[list[Any]]) -> Iterator[str]:
    try:
        rows = read_part(part.uri)
    except OSError as error:
        yield f"rollout part {part.uri} cannot be read: {error}"
        return
    if len(rows) != part.rows:
        yield f"rollout part {part.uri} has {len(rows)} rows, its entry says {part.rows}"
    for uid, n, correct, first, _ in groups:
        own = rows[first : first + n]
        if [row["uid"] for row in own] != [uid] * n or sum(row["correct"] for row in own) != correct:
            yield f"rollout part {part.uri}: rows {first} to {first + n - 1} are not the {n} rollouts of {uid}"


def _checkpoints(run: Run, expected: Expected) -> Iterator[str]:
    found = {}
    for one in Checkpoint.objects.filter(run=run):
        found[one.uri] = (one.attempt, one.iteration, one.weights_hash, one.final, one.retired)
        # Retention needs no event: it is decided by the rows.
        if one.removed_at is None:
            if one.uri in expected.removed:
                yield f"checkpoint {one.uri} was removed, its row offers it"
            if not one.retired:
                yield from _checkpoint_files(one)
    wanted = {uri: (*told, expected.retired(told[0], told[1])) for uri, told in expected.checkpoints.items()}
    yield from _compared("checkpoint", wanted, found)
    finals = [uri for uri, row in found.items() if row[3] and not row[4]]
    if len(finals) != 1:
        yield f"final checkpoints that count: {finals}, expected one"


def _checkpoint_files(checkpoint: Checkpoint) -> Iterator[str]:
    try:
        manifest = json.loads(read(f"{checkpoint.uri}/manifest.json"))
    except (OSError, ValueError) as error:
        yield f"checkpoint {checkpoint.uri} has no manifest: {error}"
        return
    if not checkpoint.available:
        yield f"checkpoint {checkpoint.uri} is stored, its row does not offer it"
    if manifest["weights_hash"] != checkpoint.weights_hash:
        yield f"checkpoint {checkpoint.uri}: weights {manifest['weights_hash']}, its row says {checkpoint.weights_hash}"
    for name, entry in manifest["files"].items():
        try:
            found = file_digest(f"{checkpoint.uri}/{name}")
        except OSError:
            found = None
        if found != (entry["size"], entry["sha256"]):
            yield f"checkpoint {checkpoint.uri}: {name} is missing or differs from the manifest"


def _events(run: Run, expected: Expected) -> Iterator[str]:
    found: Counter[tuple[int, str, str, int | None, str]] = Counter()
    for row in EventRow.objects.filter(run=run):
        said = row.payload.get("state" if row.kind == "state" else "message", "")
        found[row.attempt, row.kind, row.key, row.iteration, said] += 1
        if row.iteration is not None and row.retired != expected.retired(row.attempt, row.iteration):
            yield f"event {row.kind} {row.key} of attempt {row.attempt}, iteration {row.iteration}: retired {row.retired}"
    yield from _compared("event", dict(expected.events), dict(found))


def _compared(what: str, wanted: Mapping[Any, Any], found: Mapping[Any, Any]) -> Iterator[str]:
    """Rows that are missing, too many or different, the first few of each."""
    missing = [key for key in wanted if key not in found]
    extra = [key for key in found if key not in wanted]
    other = [key for key in wanted if key in found and wanted[key] != found[key]]
    for kind, keys in (("missing", missing), ("not in any event file", extra)):
        for key in keys[:SHOWN]:
            yield f"{what} {key} is {kind} ({len(keys)} such)"
    for key in other[:SHOWN]:
        yield f"{what} {key}: {_short(found[key])}, its event says {_short(wanted[key])} ({len(other)} such)"
