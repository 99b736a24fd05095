"""Events are written without the run's secrets, whatever is shortened on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from trainer.contract import drawn
from trainer.contract import events as ev
from trainer.contract.redaction import Redactor
from trainer.loop.emitter import EventWriter

VALUE = "a-long-secret-value-of-a-judge"
AXES = ev.Axes(iteration=1)


def written(tmp_path: Path, *events: ev.Event, value: str = VALUE) -> tuple[list[dict[str, Any]], list[BaseModel]]:
    """(the events as they stand in the file, what was echoed)"""
    echoed: list[BaseModel] = []
    path = tmp_path / "events.jsonl"
    emit = EventWriter(path, run="r", attempt=1, echo=echoed.append, redact=Redactor({"KEY": value}))
    for event in events:
        emit(event)
    emit.close()
    return [json.loads(line)["event"] for line in path.read_text().splitlines()], echoed


@pytest.mark.parametrize("kept", [1, 7, 8, 10])
def test_a_value_where_an_event_is_cut_does_not_leave_its_first_half(tmp_path: Path, kept: int) -> None:
    text = "x" * (drawn.LONGEST_TEXT - kept) + VALUE
    cell = "x" * (drawn.LONGEST_CELL - 1 - kept) + VALUE
    (note, table), _ = written(
        tmp_path, drawn.text(AXES, "t", text), drawn.table(AXES, "k", columns=["a"], rows=[[cell]])
    )
    assert note["text"] == ("x" * (drawn.LONGEST_TEXT - kept) + "[secret KEY]")[: drawn.LONGEST_TEXT]
    assert (
        table["rows"][0][0] == ("x" * (drawn.LONGEST_CELL - 1 - kept) + "[secret KEY]")[: drawn.LONGEST_CELL - 1] + "…"
    )


def test_no_kind_of_event_tells_a_value(tmp_path: Path) -> None:
    problem = ev.SetProblem(uid="p", text=VALUE, answer=VALUE)
    sampler = ev.SamplerSettings(temperature=1.0, max_new_tokens=1, stop=[VALUE])
    the_set = ev.EvaluationSet(
        id="s", task="t", split="test", checker_version="1", sampler=sampler, n=1, problems=[problem]
    )
    counted = ev.ProblemResult(uid="p", n=1, c=0, answers=[ev.AnswerCount(key=VALUE, count=1, correct=False)])
    group = ev.RolloutGroup(uid="p", text=VALUE, answer=VALUE, n=1, c=0, first_row=0)
    events: list[ev.Event] = [
        ev.State(state="failed", message=VALUE, versions={"x": VALUE}),
        ev.Progress(iteration=1, total_iterations=2, stage=VALUE),
        ev.Scalars(axes=AXES, values={f"of/{VALUE}": 1.0, "other": None}, nonfinite={"other": "nan"}),
        drawn.histogram(AXES, VALUE, [1.0, 2.0]),
        drawn.heatmap(AXES, VALUE, x=[VALUE], y=["y"], z=[[1.0]]),
        drawn.scatter(AXES, VALUE, [(1.0, 2.0)], labels=[VALUE], x_title=VALUE),
        drawn.table(AXES, VALUE, columns=[VALUE], rows=[[{VALUE: [VALUE]}]]),
        drawn.text(AXES, VALUE, VALUE),
        ev.Evaluation(axes=AXES, name="test", set_id="s", set=the_set, weights_hash="w", problems=[counted]),
        ev.Rollouts(axes=AXES, uri="part", rows=1, groups=[group]),
        ev.Checkpoint(axes=AXES, uri="c", weights_hash="w", size_bytes=1, metrics={VALUE: 1.0}),
        ev.CheckpointRefused(uri="c", reason=VALUE),
        ev.Phase(axes=AXES, name="rl", title=VALUE),
        ev.Mark(mark="alert", iteration=1, message=VALUE, data={"a": {VALUE: VALUE}}),
        ev.Log(message=VALUE),
    ]
    found, echoed = written(tmp_path, *events)
    assert [event["kind"] for event in found] == [event.kind for event in events]
    assert VALUE not in json.dumps(found)
    assert all("[secret KEY]" in json.dumps(event) for event in found)
    assert VALUE not in repr(echoed)


def test_a_value_that_is_a_word_of_an_event_leaves_a_warning_in_its_place(tmp_path: Path) -> None:
    (left,), _ = written(tmp_path, ev.State(state="finished"), value="finished")
    assert (left["kind"], left["level"]) == ("log", "warning")
    assert left["message"] == (
        "An event 'state' was left out: a secret stood in it where only certain words may stand."
    )
