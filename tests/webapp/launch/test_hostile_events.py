"""Whatever stands in events.jsonl, the rest of it is stored, nothing twice, and the log says what was left out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.webapp.making import claimed, evaluation_event, lines, make_run
from trainer.contract import drawn
from trainer.contract import events as ev
from webapp.evals.models import Evaluation
from webapp.launch import ingest, tail
from webapp.metrics.models import AxisRow, Point
from webapp.projects.models import Project
from webapp.runs.models import OPAQUE, Attempt, EventRow, Run
from webapp.runs.selectors import log_tail


def raw(run: Run, seq: int, event: str, **more: Any) -> bytes:
    envelope = {"run": run.pk, "attempt": 1, "seq": seq, "time": "2026-01-01T00:00:00Z", "monotonic": 0.0, **more}
    return (json.dumps(envelope)[:-1] + f', "event": {event}}}\n').encode()


def told(run: Run) -> list[str]:
    return [line["message"] for line in log_tail(run)]


def store(run: Run, data: bytes) -> None:
    path = tail.events_path(run.pk, 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    tail.drain(claimed(run))


GOOD = '{"kind": "log", "message": "the end"}'


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ('{"kind": "scalars", "axes": {"iteration": 1}, "values": {"a": 1e400}}', "inf is not finite"),
        ('{"kind": "log", "message": "\x01"}', "control character"),
        ('{"kind": "table", "axes": {"iteration": 1}, "key": "k", "columns": ["a"], "rows": [[' + "[" * 90000 + "]" * 90000
         + "]]}", "nested too deeply"),
        ('{"kind": "scalars", "axes": {"iteration": 99999999999}, "values": {}}', "event.scalars.axes.iteration"),
        ("7", "event"),
        ('{"kind": "histogram", "axes": {"iteration": 1}, "key": "k", "edges": [1], "counts": [1]}', "one edge more"),
    ],
)  # fmt: skip
def test_a_bad_event_is_told_and_costs_no_other(project: Project, event: str, why: str) -> None:
    run = make_run(project)
    store(run, raw(run, 1, event) + raw(run, 2, GOOD))
    assert told(run)[-1] == "the end"
    assert any(why in line and "skipped" in line for line in told(run)[:-1])


def test_nul_and_surrogates_are_stored_as_replacement_characters(project: Project) -> None:
    run = make_run(project)
    table = (
        r'{"kind": "table", "axes": {"iteration": 1}, "key": "k", "columns": ["a\u0000"], "rows": [["\ud800\u0000"]]}'
    )
    store(run, raw(run, 1, r'{"kind": "log", "message": "a\u0000\udfff"}') + raw(run, 2, table))
    assert told(run) == ["a\ufffd\ufffd"]
    assert EventRow.objects.get(kind="table").payload["rows"] == [["\ufffd\ufffd"]]


def test_an_event_of_a_newer_trainer_is_kept_whole_and_told_once(project: Project) -> None:
    run = make_run(project)
    video = '{"kind": "video", "axes": {"iteration": 4}, "uri": "a"}'
    store(run, raw(run, 1, video) + raw(run, 2, video.replace('"a"', '"b"')) + raw(run, 3, GOOD, v=3))
    rows = EventRow.objects.filter(kind=OPAQUE).order_by("pk")
    assert [(row.key, row.iteration) for row in rows] == [("video", 4), ("video", 4), ("log", None)]
    assert [row.payload["document"]["uri"] for row in rows[:2]] == ["a", "b"]
    video_told, log_told = told(run)
    assert (
        video_told
        == "Events of the kind 'video' are kept but not shown: this release knows no event of the kind 'video'."
    )
    assert "version 3" in log_told
    assert Attempt.objects.get().last_seq == {"trainer": 3}


def test_a_closed_event_of_many_megabytes_is_kept_by_its_beginning(project: Project) -> None:
    run = make_run(project)
    store(run, raw(run, 1, json.dumps({"kind": "video", "bytes": "x" * 3_000_000})))
    payload = EventRow.objects.get(kind=OPAQUE).payload
    assert (len(payload["head"]), payload["length"]) == (1_000_000, 3_000_030)


def test_a_line_longer_than_any_event_is_passed_over(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "LONGEST_LINE", 2000)
    monkeypatch.setattr(tail, "BATCH_BYTES", 500)
    run = make_run(project)
    held = claimed(run)
    path = tail.events_path(run.pk, 1)
    path.parent.mkdir(parents=True)
    long = raw(run, 2, json.dumps({"kind": "log", "message": "x" * 5000}))
    path.write_bytes(raw(run, 1, GOOD) + long[:4000])
    tail.drain(held)
    assert told(run) == ["the end"]
    path.write_bytes(raw(run, 1, GOOD) + long + raw(run, 3, GOOD.replace("end", "rest")))
    tail.drain(held)
    _first, skipped, gap, last = told(run)
    assert f"has {len(long):,} bytes and was skipped" in skipped
    assert gap == "Events 2 to 2 of the writer 'trainer' are missing."
    assert last == "the rest"


def test_what_is_too_large_to_draw_is_stored_smaller_with_a_note(project: Project) -> None:
    run = make_run(project)
    axes = ev.Axes(iteration=1)
    names = [str(i) for i in range(1000)]
    events: list[ev.Event] = [
        ev.Table(axes=axes, key="t", columns=["a"], rows=[[i] for i in range(100_000)]),
        ev.Text(axes=axes, key="x", text="y" * 5_000_000),
        ev.Heatmap(axes=axes, key="h", x=names, y=names, z=[[0.5] * 1000] * 1000),
    ]
    store(run, lines(run.pk, events))
    found = {row.key: row.payload for row in EventRow.objects.all()}
    assert len(found["t"]["rows"]) == 1000
    assert found["t"]["note"] == "the first 1000 of 100000 rows"
    assert len(found["x"]["text"]) == 200_000
    assert len(found["h"]["z"]) * len(found["h"]["x"]) == 10_000


# Any split of any file

ITERATION = st.integers(0, 6)
AXES = st.builds(
    ev.Axes, iteration=ITERATION, phase=st.sampled_from(["rl", "irl"]), sampled_tokens=st.integers(0, 10**12),
    device_seconds=st.floats(0, 1e9),
)  # fmt: skip
KEY = st.sampled_from(["a", "b"])
FLOATS = st.lists(st.floats(), max_size=3)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
EVENTS = st.one_of(
    st.builds(lambda axes, values: ev.Scalars(axes=axes, **ev.pack_numbers(values)), AXES, st.dictionaries(KEY, st.floats())),
    st.builds(drawn.histogram, AXES, KEY, FLOATS),
    st.builds(lambda axes, key, z: drawn.heatmap(axes, key, x=["x"], y=["y"] * len(z), z=[[v] for v in z]), AXES, KEY, FLOATS),
    st.builds(lambda axes, key, xs: drawn.scatter(axes, key, [(x, x) for x in xs]), AXES, KEY, FLOATS),
    st.builds(lambda axes, key, t: drawn.table(axes, key, columns=["c"], rows=[[t], [1]]), AXES, KEY, TEXT),
    st.builds(drawn.text, AXES, KEY, TEXT),
    st.builds(lambda i, c: evaluation_event(i, [(4, c)] * 3), ITERATION, st.integers(0, 4)),
    st.builds(ev.Phase, axes=AXES, name=st.sampled_from(["rl", "irl"]), title=TEXT),
    st.builds(ev.Mark, mark=st.sampled_from(["live_edit", "alert", "stop"]), iteration=ITERATION, message=TEXT),
    st.builds(ev.Log, message=TEXT),
    st.builds(ev.Progress, iteration=ITERATION, total_iterations=st.just(6), stage=TEXT),
    st.builds(ev.Opaque, of=KEY, reason=st.just("test"), document=st.just({"a": 1})),
)  # fmt: skip


def rows_of(run: Run) -> Any:
    """Everything stored of a run, without what depends on the split: primary keys, live numbers and the clock."""
    run.refresh_from_db()
    points = Point.objects.filter(series__run=run).values_list(
        "series__key", "iteration", "attempt", "value", "nonfinite"
    )
    axes = [name.name for name in AxisRow._meta.fields if name.name not in ("id", "run", "live_seq")]
    events = (
        EventRow.objects.filter(run=run).order_by("pk").values_list("kind", "key", "iteration", "payload", "retired")
    )
    return {
        "points": sorted(points),
        "axes": list(AxisRow.objects.filter(run=run).order_by("iteration").values_list(*axes)),
        "events": list(events),
        "evaluations": list(
            Evaluation.objects.filter(run=run).values_list("iteration", "counts").order_by("iteration")
        ),
        "run": (run.iteration, run.stage, run.phase, run.state),
        "series": list(run.series.order_by("key").values_list("key", "last_iteration", "last_value", "last_nonfinite")),
        "seq": Attempt.objects.get(run=run).last_seq,
    }


@given(events=st.lists(EVENTS, max_size=12), cuts=st.lists(st.floats(0, 1), max_size=5))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_any_events_in_any_batches_give_the_same_rows(
    events: list[ev.Event], cuts: list[float], project: Project
) -> None:
    whole, split = make_run(project), make_run(project)
    ingest.store(claimed(whole), ingest.parse(lines(whole.pk, events), 0))
    data = lines(split.pk, events)
    held = claimed(split)
    begin = 0
    for end in [*sorted(int(cut * len(data)) for cut in cuts), len(data)]:
        batch = ingest.parse(data[begin:end], begin)
        ingest.store(held, batch)
        begin = batch.end
    assert rows_of(split) == rows_of(whole)
