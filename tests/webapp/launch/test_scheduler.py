"""The scheduler goes on whatever its jobs meet; clocks that jump and schedulers that sleep cost no run."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from tests.webapp.launch.test_queue import sent  # noqa: F401
from tests.webapp.making import claimed, make_run
from webapp.core.jobs import Job, jobs
from webapp.launch import queue
from webapp.launch.scheduler import Scheduler
from webapp.projects.models import Project
from webapp.runs.models import Attempt, Run
from webapp.runs.services import renew

ran: list[str] = []


def failing() -> None:
    """A job that meets one thing after the other."""
    ran.append("failing")
    raise {1: OperationalError("the server is away"), 2: ConnectionError("no broker")}.get(len(ran), ValueError("odd"))


def calm() -> None:
    """A job that does nothing."""
    ran.append("calm")


def job(name: str, work: Any) -> Job:
    return Job(name=name, work=f"{__name__}:{work.__name__}", every=7.0)


@pytest.fixture(autouse=True)
def nothing_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    from webapp.launch import scheduler

    ran.clear()
    # The test's own transaction lives on the connection, which must not be closed under it.
    monkeypatch.setattr(scheduler, "close_old_connections", lambda: None)
    monkeypatch.setattr(Job, "function", property(lambda self: globals()[self.work.rpartition(":")[2]]))


def test_a_job_is_called_again_after_whatever_it_met() -> None:
    pauses: list[float] = []

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        return len(pauses) > 4

    scheduler = Scheduler([job("failing", failing)], wait=wait)
    scheduler.start()
    scheduler.join(10)
    assert (ran, pauses) == (["failing"] * 4, [7.0] * 5)


def test_a_job_that_hangs_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, free, calls = threading.Event(), threading.Event(), [0]

    def hanging() -> None:
        begun.set()
        assert free.wait(10)

    def wait(_seconds: float) -> bool:
        if threading.current_thread().name == "calm":
            assert begun.wait(10)
            calls[0] += 1
            return calls[0] > 3
        return begun.is_set()

    monkeypatch.setitem(globals(), "hanging", hanging)
    scheduler = Scheduler([job("hanging", hanging), job("calm", calm)], wait=wait)
    scheduler.start()
    scheduler._threads[1].join(10)
    assert ran == ["calm"] * 3
    free.set()
    scheduler.join(10)


def test_the_installation_has_its_jobs() -> None:
    assert {"reap", "send-again", "forget-workers"} <= {one.name for one in jobs()}


class Clock:
    """The wall clock of everybody, which a test may set."""

    def __init__(self) -> None:
        self.now = datetime(2026, 6, 1, 12, tzinfo=timezone.get_default_timezone())

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(timezone, "now", found)
    return found


@pytest.mark.parametrize("jump", [timedelta(hours=1), -timedelta(hours=1), timedelta(days=3650), -timedelta(days=3650)])
def test_a_jump_of_the_clock_takes_no_healthy_run_and_keeps_no_lost_one(
    jump: timedelta, project: Project, clock: Clock
) -> None:
    watch = queue.Watch(patience=7)
    healthy, lost = claimed(make_run(project, name="healthy")), claimed(make_run(project, name="lost"))
    taken = []
    for look in range(12):
        if look == 3:
            clock.now += jump
        clock.now += timedelta(seconds=10)
        assert renew(healthy)
        taken.append(queue.reap(watch))
    assert taken == [0] * 7 + [1] + [0] * 4
    assert Run.objects.get(pk=healthy.run_id).state == "starting"
    assert Run.objects.get(pk=lost.run_id).attempts.get(number=1).state == "lost"


@pytest.mark.parametrize("jump", [timedelta(hours=1), -timedelta(hours=1)])
def test_a_jump_of_the_clock_leaves_no_queued_run_behind(
    jump: timedelta,
    project: Project,
    clock: Clock,
    sent: list[int],  # noqa: F811
) -> None:
    make_run(project)
    assert queue.send_again() == 1
    clock.now += jump
    assert queue.send_again() == 1
    clock.now += timedelta(seconds=61)
    assert queue.send_again() == 1


def test_a_scheduler_that_slept_or_had_no_database_takes_nothing_at_once(project: Project, clock: Clock) -> None:
    watch = queue.Watch(patience=7)
    held = claimed(make_run(project))
    assert queue.reap(watch) == 0
    # Ten minutes without a look, in which the worker could not renew either: the same database was away from it.
    clock.now += timedelta(minutes=10)
    assert queue.reap(watch) == 0
    assert renew(held)
    assert sum(queue.reap(watch) for _ in range(7)) == 0


def test_two_schedulers_bury_a_run_once(project: Project) -> None:
    one, two = queue.Watch(patience=7), queue.Watch(patience=7)
    run = make_run(project)
    claimed(run)
    assert [queue.reap(one) + queue.reap(two) for _ in range(8)] == [0] * 7 + [1]
    found = Run.objects.get(pk=run.pk)
    assert (found.state, found.attempt_number) == ("queued", 2)
    assert [t.target for t in found.transitions.all()] == ["queued", "starting", "lost", "queued"]
    assert Attempt.objects.count() == 2
