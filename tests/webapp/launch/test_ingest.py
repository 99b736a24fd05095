"""Exactly once, fenced, and in order."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.webapp.making import claimed, lines, make_run, scalars
from trainer.contract import events as ev
from webapp.launch import ingest, tail
from webapp.metrics.models import Point
from webapp.metrics.selectors import load_series
from webapp.projects.models import Project
from webapp.runs.models import Attempt, EventRow, Run
from webapp.runs.selectors import log_tail
from webapp.runs.services import Claim, ClaimLost, add_attempt, finish
from webapp.runs.states import RunState


def test_a_batch_is_stored_once_whoever_sends_it_again(project: Project) -> None:
    run = make_run(project)
    held = claimed(run)
    batch = ingest.parse(lines(run.pk, [ev.Log(message="one"), scalars(1, a=1.0)]), 0)
    ingest.store(held, batch)
    with pytest.raises(ingest.OffsetMoved) as moved:
        ingest.store(held, batch)
    assert moved.value.offset == batch.end
    assert EventRow.objects.filter(kind="log").count() == 1


def test_a_batch_that_fails_leaves_neither_rows_nor_offset(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(project)
    held = claimed(run)
    batch = ingest.parse(lines(run.pk, [scalars(1, a=1.0), ev.Log(message="one")]), 0)

    def die(**_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ingest.runs, "add_events", die)
        with pytest.raises(KeyboardInterrupt):
            ingest.store(held, batch)
    assert (Point.objects.count(), Attempt.objects.get().byte_offset) == (0, 0)
    ingest.store(held, batch)
    assert (Point.objects.count(), Attempt.objects.get().byte_offset) == (1, batch.end)


@given(cut=st.lists(st.integers(0, 2000), max_size=6))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_cutting_of_the_file_gives_the_same_rows(cut: list[int], project: Project) -> None:
    run = make_run(project)
    held = claimed(run)
    data = lines(run.pk, [*(scalars(i, a=float(i)) for i in range(1, 6)), ev.Log(message="é\u2028 end")])
    offset = 0
    for size in [*sorted(cut), len(data)]:
        batch = ingest.parse(data[offset:size], offset)
        if batch.end > offset:
            ingest.store(held, batch)
            offset = batch.end
    assert offset == len(data)
    assert load_series(run, ["a"])[0].y == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert [row["message"] for row in log_tail(run)] == ["é\u2028 end"]


def test_a_superseded_attempt_is_refused(project: Project) -> None:
    run = make_run(project)
    old = claimed(run)
    finish(old, to=RunState.STOPPED, exit_code=10, reason="", worker="w")
    add_attempt(run=run)
    claimed(Run.objects.get(pk=run.pk))
    with pytest.raises(ClaimLost):
        ingest.store(old, ingest.parse(lines(run.pk, [scalars(1, a=1.0)]), 0))
    assert Point.objects.count() == 0


def test_a_forged_claim_is_refused(project: Project) -> None:
    run = make_run(project)
    held = claimed(run)
    forged = Claim(held.attempt_id, held.run_id, held.number, "0" * 32)
    with pytest.raises(ClaimLost):
        ingest.store(forged, ingest.parse(lines(run.pk, [scalars(1, a=1.0)]), 0))


def test_events_of_another_run_in_the_file_are_refused_and_told(project: Project) -> None:
    run = make_run(project)
    data = lines("elsewhere", [scalars(1, a=1.0)]) + lines(run.pk, [scalars(1, b=1.0)])
    ingest.store(claimed(run), ingest.parse(data, 0))
    assert [s.key for s in load_series(run, ["a", "b"])] == ["b"]
    assert "Refused an event of run elsewhere, attempt 1" in log_tail(run)[0]["message"]


def test_gaps_are_told_and_repeats_are_dropped(project: Project) -> None:
    run = make_run(project)
    data = lines(run.pk, [ev.Log(message="one")]) + lines(run.pk, [ev.Log(message="four")], first_seq=4)
    data += lines(run.pk, [ev.Log(message="four again")], first_seq=4)
    ingest.store(claimed(run), ingest.parse(data, 0))
    messages = [row["message"] for row in log_tail(run)]
    assert messages == ["one", "Events 2 to 3 of the writer 'trainer' are missing.", "four"]


def test_one_event_that_the_database_refuses_costs_no_other(
    project: Project, settings_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(project)
    held = claimed(run)
    path = tail.events_path(run.pk, 1)
    path.parent.mkdir(parents=True)
    path.write_bytes(lines(run.pk, [scalars(1, a=1.0), ev.Text(axes=ev.Axes(iteration=1), key="bad", text="x"),
                                    scalars(2, a=2.0)]))  # fmt: skip
    real = ingest._event

    def refuse(event: ev.Event, *args: object, **fields: object) -> object:
        if getattr(event, "key", "") == "bad":
            raise ValueError("value too long for type character varying(160)")
        return real(event, *args, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(ingest, "_event", refuse)
    tail.drain(held)
    assert load_series(run, ["a"])[0].y == [1.0, 2.0]
    assert "could not be stored and was skipped: value too long" in log_tail(run)[0]["message"]
    assert Attempt.objects.get().byte_offset == path.stat().st_size


@pytest.fixture
def settings_files(settings: object, tmp_path: object) -> None:
    settings.FILES_DIR = tmp_path  # type: ignore[attr-defined]


def test_a_nul_that_a_model_sampled_is_stored_as_a_replacement(project: Project) -> None:
    run = make_run(project)
    data = lines(run.pk, [ev.Log(message="a\0b")])
    assert b"\\u0000" in data
    ingest.store(claimed(run), ingest.parse(data, 0))
    assert log_tail(run)[0]["message"] == "a\ufffdb"


def test_the_live_number_rises_by_one_a_batch(project: Project) -> None:
    run = make_run(project)
    held = claimed(run)
    before = Run.objects.get(pk=run.pk).live_seq
    stored = ingest.store(held, ingest.parse(lines(run.pk, [ev.Log(message="one"), ev.Log(message="two")]), 0))
    assert stored.live_seq == before + 1
    assert set(EventRow.objects.values_list("live_seq", flat=True)) == {before + 1}


def test_a_rewind_retires_evaluations_rollouts_checkpoints_and_marks(project: Project) -> None:
    from tests.webapp.making import evaluation_event, send

    run = make_run(project)
    held = claimed(run)
    for at in (1, 2, 3):
        axes = ev.Axes(iteration=at)
        send(held, [
            evaluation_event(at, [(4, 1)]),
            ev.Rollouts(axes=axes, uri=f"attempts/1/p{at}.parquet", rows=0, groups=[]),
            ev.Checkpoint(axes=axes, uri=f"attempts/1/c{at}", weights_hash="h", size_bytes=1),
            ev.Mark(mark="alert", iteration=at),
        ])  # fmt: skip
    finish(held, to=RunState.STOPPED, exit_code=10, reason="", worker="w")
    add_attempt(run=run)
    send(claimed(Run.objects.get(pk=run.pk)), [ev.Mark(mark="rewind", iteration=2)])
    for rows in (run.evaluations, run.rollout_parts, run.checkpoints, run.events.filter(key="alert")):
        assert sorted(rows.filter(retired=False).values_list("iteration", flat=True)) == [1, 2]
        assert list(rows.filter(retired=True).values_list("iteration", flat=True)) == [3]


def test_lines_are_json_of_the_contract() -> None:
    assert json.loads(lines("r", [ev.Log(message="x")]))["event"]["kind"] == "log"
