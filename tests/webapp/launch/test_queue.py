"""Launching, and what the scheduler does about silence."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tests.conftest import Cast
from tests.webapp.launch.conftest import FAKE
from tests.webapp.making import claimed, document, lines, make_run, scalars, send
from trainer.contract import events as ev
from trainer.contract.config import InvalidConfig
from webapp.launch import queue, tasks
from webapp.launch.services import cancel_run, enqueue, launch_run, resume_run
from webapp.launch.tail import events_path
from webapp.metrics.selectors import load_series
from webapp.projects.models import Project
from webapp.runs.models import Attempt, Run
from webapp.runs.services import ClaimLost, finish
from webapp.runs.states import BadTransition, RunState

Callbacks = Callable[..., Any]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []
    monkeypatch.setattr(tasks.supervise, "apply_async", lambda arguments, **_: found.extend(arguments))
    return found


def test_a_launch_is_a_row_first_and_a_message_after_the_commit(
    cast: Cast, sent: list[int], django_capture_on_commit_callbacks: Callbacks
) -> None:
    with django_capture_on_commit_callbacks() as callbacks:
        run = launch_run(cast.project, cast["member"], document(seed=7, methods=[{"slug": "sps"}]))
        assert sent == []
    for callback in callbacks:
        callback()
    attempt = run.attempts.get()
    assert sent == [attempt.pk]
    assert (run.state, run.kind, run.seed, run.methods, run.task) == ("queued", "rl", 7, ["sps"], "parity")
    assert run.name == "sps · parity · seed 7"
    assert run.config["algorithm"]["preset"] == "grpo"
    assert run.transitions.get().actor == cast["member"]


def test_a_wrong_document_launches_nothing(cast: Cast) -> None:
    with pytest.raises(InvalidConfig, match=r"budget\.iterations"):
        launch_run(cast.project, cast["member"], document(budget={"iterations": 0}))
    assert Run.objects.count() == 0


def test_a_broker_that_is_away_leaves_the_run_queued(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Callbacks
) -> None:
    def refuse(_arguments: tuple[int], **_options: str) -> None:
        raise ConnectionError("no broker")

    monkeypatch.setattr(tasks.supervise, "apply_async", refuse)
    with django_capture_on_commit_callbacks() as callbacks:
        run = launch_run(cast.project, cast["member"], document())
    with pytest.raises(ConnectionError):
        callbacks[0]()
    assert Run.objects.get(pk=run.pk).state == "queued"


def test_the_task_supervises_once_however_often_it_is_delivered(
    project: Project, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.FILES_DIR = tmp_path
    settings.TRAINER_COMMAND = [sys.executable, "-S", str(FAKE), "finish"]
    run = make_run(project)
    attempt = run.attempts.get()
    tasks.supervise(attempt.pk)
    tasks.supervise(attempt.pk)
    assert Run.objects.get(pk=run.pk).state == "finished"
    assert run.transitions.filter(target="starting").count() == 1


def test_queued_attempts_are_sent_again_more_and_more_rarely(project: Project, sent: list[int]) -> None:
    run = make_run(project)
    assert queue.send_again() == 1
    assert queue.send_again() == 0
    Attempt.objects.update(enqueued_at=timezone.now() - timedelta(seconds=31))
    assert queue.send_again() == 1
    Attempt.objects.update(enqueued_at=timezone.now() - timedelta(seconds=31))
    assert queue.send_again() == 0
    Attempt.objects.update(enqueued_at=timezone.now() - timedelta(seconds=61))
    assert queue.send_again() == 1
    claimed(run)
    Attempt.objects.update(enqueued_at=timezone.now() - timedelta(days=1))
    assert queue.send_again() == 0


def test_two_schedulers_send_one_message(project: Project, sent: list[int]) -> None:
    attempt = make_run(project).attempts.get()
    same = Attempt.objects.get(pk=attempt.pk)
    assert enqueue(attempt)
    assert not enqueue(same)


def reaped(watch: queue.Watch | None = None, *, looks: int = 8) -> int:
    """How many attempts a scheduler takes away that looks so often while nobody gives a sign of life."""
    watch = watch or queue.Watch(patience=7)
    return sum(queue.reap(watch) for _ in range(looks))


def test_a_worker_is_only_lost_after_a_lease_of_looks(project: Project) -> None:
    run = make_run(project)
    claimed(run)
    watch = queue.Watch(patience=7)
    assert reaped(watch, looks=7) == 0
    assert Run.objects.get(pk=run.pk).state == "starting"
    assert queue.reap(watch) == 1


def test_a_silent_worker_loses_its_run_and_what_was_written_is_read(
    project: Project, settings: Any, tmp_path: Path
) -> None:
    settings.FILES_DIR = tmp_path
    run = make_run(project, auto_resume=0)
    held = claimed(run)
    send(held, [scalars(1, a=1.0)])
    path = events_path(run.pk, 1)
    path.parent.mkdir(parents=True)
    first = lines(run.pk, [scalars(1, a=1.0)])
    path.write_bytes(first + lines(run.pk, [scalars(2, a=2.0)], first_seq=2) + b'{"torn')
    assert reaped() == 1
    found = Run.objects.get(pk=run.pk)
    assert (found.state, found.can_resume) == ("lost", True)
    assert found.transitions.last().actor_name == "scheduler"  # type: ignore[union-attr]
    assert load_series(found, ["a"])[0].y == [1.0, 2.0]
    with pytest.raises(ClaimLost):
        send(held, [scalars(3, a=3.0)])
    with pytest.raises(ClaimLost):
        finish(held, to=RunState.FINISHED, exit_code=0, reason="late", worker="w")


@pytest.mark.parametrize(("said", "state"), [("finished", "finished"), ("stopped", "stopped"), ("failed", "failed")])
def test_the_trainers_last_word_decides_when_its_worker_is_gone(said: Any, state: str, project: Project) -> None:
    run = make_run(project, auto_resume=0)
    send(claimed(run), [ev.State(state="running"), ev.State(state=said, message="why")])
    assert reaped() == 1
    assert Run.objects.get(pk=run.pk).state == state


def test_a_worker_that_comes_back_in_time_keeps_its_run(project: Project) -> None:
    from webapp.runs.services import renew

    run = make_run(project)
    held, watch = claimed(run), queue.Watch(patience=7)
    assert reaped(watch, looks=7) == 0
    assert renew(held)
    assert reaped(watch, looks=7) == 0


def test_cancel_and_resume_say_what_is_not_possible(project: Project, sent: list[int]) -> None:
    run = make_run(project)
    with pytest.raises(BadTransition, match="queued cannot become queued"):
        resume_run(run, None)
    assert cancel_run(run, None).state == "cancelled"
    assert resume_run(run, None).number == 2
    assert Run.objects.get(pk=run.pk).state == "queued"
