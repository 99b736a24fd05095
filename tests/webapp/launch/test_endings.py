"""Which runs go on by themselves, how often, and who has the last word."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.webapp.launch.test_queue import sent  # noqa: F401
from tests.webapp.making import claimed, make_run, send
from trainer.contract import events as ev
from webapp.launch import queue
from webapp.launch.endings import LONGEST_PAUSE, end
from webapp.launch.outcome import Again, Outcome
from webapp.launch.services import cancel_run, resume_run
from webapp.projects.models import Project
from webapp.runs.models import Attempt, Run
from webapp.runs.services import request_stop, set_auto_resume
from webapp.runs.states import RunState

LOST = Outcome(RunState.LOST, "Silent.", Again.COUNTED)
SHUT_DOWN = Outcome(RunState.STOPPED, "Shut down.", Again.FREELY)


def interrupted(run: Run, outcome: Outcome = LOST, *, checkpoint: int | None = None) -> Run:
    """The run after its current attempt was taken, saved a checkpoint (or none), and was ended as told."""
    held = claimed(Run.objects.get(pk=run.pk))
    if checkpoint is not None:
        uri = f"attempts/{held.number}/checkpoints/it-{checkpoint:08d}"
        axes = ev.Axes(iteration=checkpoint)
        send(held, [ev.Checkpoint(axes=axes, uri=uri, weights_hash=f"h{checkpoint}", size_bytes=1)])
    return end(held, outcome, exit_code=None, worker="scheduler")


def steps(run: Run) -> list[tuple[str, str, str]]:
    return [(t.source, t.target, t.actor_name) for t in run.transitions.all()]


def test_a_lost_run_is_queued_again_in_one_step_with_its_reason(project: Project) -> None:
    run = interrupted(make_run(project))
    assert (run.state, run.attempt_number, run.auto_resumes, run.can_stop) == ("queued", 2, 1, True)
    assert steps(run)[-2:] == [("starting", "lost", "scheduler"), ("lost", "queued", "scheduler")]
    assert run.message == "Resumed automatically after a pause of 10 s, 1 of 3 without a new checkpoint. Silent."
    first, second = run.attempts.all()
    assert (first.state, first.message, first.superseded) == ("lost", "Silent.", True)
    assert (second.state, second.superseded) == ("queued", False)


def test_without_progress_the_third_resume_is_the_last(project: Project) -> None:
    run = make_run(project)
    begin = timezone.now()
    pauses = []
    for count in (1, 2, 3):
        run = interrupted(run)
        assert (run.state, run.auto_resumes) == ("queued", count)
        not_before = run.attempts.get(number=run.attempt_number).not_before
        assert not_before is not None
        pauses.append(round((not_before - begin).total_seconds(), -1))
    assert pauses == [10, 20, 40]
    run = interrupted(run)
    assert (run.state, run.attempt_number) == ("lost", 4)
    assert run.message.endswith(
        "It was resumed automatically 3 times without reaching a new checkpoint, and is not again."
    )


def test_a_new_checkpoint_begins_the_count_anew(project: Project) -> None:
    run = make_run(project)
    for _ in range(3):
        run = interrupted(run, checkpoint=4)
    # The first one brought checkpoint 4, the others nothing newer.
    assert run.auto_resumes == 3
    run = interrupted(run, checkpoint=8)
    assert (run.state, run.auto_resumes) == ("queued", 1)
    for lifetime in range(12, 60, 4):
        run = interrupted(run, checkpoint=lifetime)
        assert (run.state, run.auto_resumes) == ("queued", 1)


def test_a_worker_that_is_shut_down_costs_no_count_and_no_pause(project: Project) -> None:
    run = make_run(project)
    for _ in range(5):
        run = interrupted(run, SHUT_DOWN)
        assert (run.state, run.auto_resumes) == ("queued", 0)
        assert run.attempts.get(number=run.attempt_number).not_before is None


@pytest.mark.parametrize("outcome", [LOST, SHUT_DOWN])
def test_a_persons_stop_wins(outcome: Outcome, project: Project) -> None:
    run = make_run(project)
    held = claimed(run)
    request_stop(run=run)
    ended = end(held, outcome, exit_code=None)
    assert (ended.state, ended.attempt_number) == (outcome.state, 1)


def test_a_cancel_during_the_pause_wins(project: Project, sent: list[int]) -> None:  # noqa: F811
    run = interrupted(make_run(project))
    assert cancel_run(run, None).state == "cancelled"
    assert run.transitions.last().reason.startswith("Cancelled")  # type: ignore[union-attr]
    Attempt.objects.update(not_before=timezone.now() - timedelta(seconds=1))
    assert queue.send_again() == 0


@pytest.mark.parametrize("outcome", [LOST, SHUT_DOWN])
def test_it_can_be_switched_off_for_a_run_and_for_all(outcome: Outcome, project: Project, settings: Any) -> None:
    ended = interrupted(set_auto_resume(run=make_run(project), limit=0), outcome)
    assert (ended.state, ended.message) == (
        outcome.state, f"{outcome.message} Automatic resumes are switched off for it."
    )  # fmt: skip
    settings.AUTO_RESUME = 0
    assert interrupted(make_run(project), outcome).state == outcome.state
    assert interrupted(make_run(project, auto_resume=1), outcome).state == "queued"


def test_a_failure_of_the_runs_own_is_not_tried_again(project: Project) -> None:
    run = interrupted(make_run(project), Outcome(RunState.FAILED, "The loss is NaN."))
    assert (run.state, run.message) == ("failed", "The loss is NaN.")


def test_a_person_who_resumes_begins_the_count_anew(project: Project) -> None:
    run = make_run(project, auto_resume=1)
    run = interrupted(interrupted(run))
    assert (run.state, run.auto_resumes) == ("lost", 1)
    resume_run(run, None)
    assert Run.objects.get(pk=run.pk).auto_resumes == 0
    assert interrupted(run).state == "queued"


def test_the_message_is_sent_when_the_pause_is_over(project: Project, sent: list[int]) -> None:  # noqa: F811
    run = interrupted(make_run(project))
    waiting = run.attempts.get(number=2)
    assert queue.send_again() == 0
    Attempt.objects.filter(pk=waiting.pk).update(not_before=timezone.now() - timedelta(seconds=1))
    assert queue.send_again() == 1


def test_a_clock_that_was_set_back_does_not_make_a_pause_endless(project: Project, sent: list[int]) -> None:  # noqa: F811
    run = interrupted(make_run(project))
    waiting = run.attempts.filter(number=2)
    waiting.update(not_before=timezone.now() + timedelta(days=365), enqueued_at=timezone.now() + timedelta(days=365))
    assert queue.send_again() == 1
    waiting.update(not_before=timezone.now() + LONGEST_PAUSE - timedelta(seconds=1), enqueued_at=None)
    assert queue.send_again() == 0
