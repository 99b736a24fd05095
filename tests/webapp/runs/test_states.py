"""Every arrow of the state machine, and every arrow that is missing."""

from __future__ import annotations

import pytest

from tests.webapp.making import claimed, make_run
from webapp.projects.models import Project
from webapp.runs.models import Attempt, Run
from webapp.runs.services import (
    ClaimLost,
    Place,
    add_attempt,
    claim,
    current_attempt,
    finish,
    hold,
    move,
    renew,
    request_stop,
    seize,
)  # fmt: skip
from webapp.runs.states import ACTIVE, OVER, RESUMABLE, TRANSITIONS, BadTransition, RunState

PAIRS = [(source, target) for source in RunState for target in RunState]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_the_table_decides(source: RunState, target: RunState, project: Project) -> None:
    run = make_run(project)
    Run.objects.filter(pk=run.pk).update(state=source)
    run = Run.objects.get(pk=run.pk)
    attempt = current_attempt(run)
    before = run.transitions.count()
    if target in TRANSITIONS[source]:
        move(run=run, attempt=attempt, to=target, reason="because", actor_name="someone")
        fresh = Run.objects.get(pk=run.pk)
        note = fresh.transitions.last()
        assert note is not None
        assert (fresh.state, current_attempt(fresh).state, fresh.live_seq) == (target, target, 2)
        assert (note.source, note.target, note.actor_name, note.reason) == (source, target, "someone", "because")
        assert (fresh.ended_at is not None) == (target in OVER)
    else:
        with pytest.raises(BadTransition, match=f"is {source} cannot become {target}"):
            move(run=run, attempt=attempt, to=target)
        assert Run.objects.get(pk=run.pk).state == source
        assert run.transitions.count() == before


def test_every_state_is_queued_active_or_over() -> None:
    assert {RunState.QUEUED} | ACTIVE | OVER == set(RunState)
    assert {"failed", "cancelled", "stopped", "lost"} == RESUMABLE
    assert set(TRANSITIONS) == set(RunState)


def test_a_message_delivered_twice_claims_once(project: Project) -> None:
    run = make_run(project)
    attempt = run.attempts.get()
    first = claim(attempt.pk, place=Place("one"))
    second = claim(attempt.pk, place=Place("two"))
    assert first is not None
    assert second is None
    assert (Run.objects.get(pk=run.pk).state, run.attempts.get().worker) == ("starting", "one")


def test_a_message_for_a_cancelled_run_claims_nothing(project: Project) -> None:
    run = make_run(project)
    assert request_stop(run=run).state == "cancelled"
    assert claim(run.attempts.get().pk, place=Place("w")) is None


def test_a_message_for_an_attempt_that_does_not_exist_claims_nothing(db: None) -> None:
    assert claim(12345, place=Place("w")) is None


def test_an_active_run_is_asked_once_and_goes_on_until_it_has_saved(project: Project) -> None:
    run = make_run(project)
    claimed(run)
    asked = request_stop(run=run)
    again = request_stop(run=run)
    assert (asked.state, again.state) == ("stopping", "stopping")
    assert again.stop_requested_at == asked.stop_requested_at
    assert run.transitions.filter(target="stopping").count() == 1


def test_a_run_that_is_over_cannot_be_stopped(project: Project) -> None:
    run = make_run(project)
    finish(claimed(run), to=RunState.FINISHED, exit_code=0, reason="done", worker="w")
    with pytest.raises(BadTransition, match="finished cannot become stopping"):
        request_stop(run=run)


def test_a_finished_run_cannot_be_resumed(project: Project) -> None:
    run = make_run(project)
    finish(claimed(run), to=RunState.FINISHED, exit_code=0, reason="done", worker="w")
    with pytest.raises(BadTransition):
        add_attempt(run=run)
    assert run.attempts.count() == 1


@pytest.mark.parametrize("ending", sorted(RESUMABLE - {RunState.CANCELLED}))
def test_resuming_makes_a_new_attempt_and_fences_the_old_one(ending: RunState, project: Project) -> None:
    run = make_run(project)
    old = claimed(run)
    finish(old, to=ending, exit_code=1, reason="ended", worker="w")
    attempt = add_attempt(run=run)
    fresh = Run.objects.get(pk=run.pk)
    assert (fresh.state, fresh.attempt_number, attempt.number, fresh.ended_at) == ("queued", 2, 2, None)
    assert run.attempts.get(number=1).superseded
    new = claimed(fresh)
    assert new.number == 2
    assert not renew(old)
    with pytest.raises(ClaimLost):
        hold(old)
    with pytest.raises(ClaimLost):
        finish(old, to=RunState.FINISHED, exit_code=0, reason="late", worker="w")
    assert Run.objects.get(pk=run.pk).state == "starting"


def test_a_sign_of_life_moves_the_beats(project: Project) -> None:
    run = make_run(project)
    held = claimed(run)
    before = Attempt.objects.get(pk=held.attempt_id).beats
    assert renew(held, pid=42)
    attempt = run.attempts.get()
    assert (attempt.pid, attempt.beats) == (42, before + 1)


def test_only_a_silent_attempt_can_be_seized(project: Project) -> None:
    run = make_run(project)
    held = claimed(run)
    seen = Attempt.objects.get(pk=held.attempt_id).beats
    assert renew(held)
    assert seize(held.attempt_id, beats=seen) is None
    taken = seize(held.attempt_id, beats=seen + 1)
    assert taken is not None
    assert not renew(held)
    assert seize(held.attempt_id, beats=seen + 1) is None
