"""The supervisor with a trainer that is a real process but trains nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection

from tests.conftest import Cast
from tests.webapp.launch.conftest import Scenario
from tests.webapp.making import claimed, make_run
from webapp.launch import ingest, supervisor, tail
from webapp.launch.shutdown import leaving
from webapp.launch.supervisor import Supervisor
from webapp.metrics.selectors import load_series
from webapp.projects.models import Project
from webapp.runs.models import Attempt, Run
from webapp.runs.selectors import events_of, log_tail
from webapp.runs.services import Claim, add_attempt, request_stop
from webapp.runs.storage import attempt_uri, path_of


@pytest.fixture
def inside_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's own transaction lives on the connection, which must not be closed under it."""
    monkeypatch.setattr(supervisor, "close_old_connections", lambda: None)


def supervise(
    held: Claim, root: Path, act: Callable[[], Any] = lambda: None, *, pause: float = 0.002, **options: Any
) -> Run:
    """To the end; `act` is called, and then there is a pause of so many seconds, while the supervisor has nothing to do."""

    def idle(_seconds: float) -> None:
        act()
        time.sleep(pause)

    Supervisor(held, root=root, sleep=idle, **options).run()
    return Run.objects.get(pk=held.run_id)


def rewards(run: Run) -> tuple[list[int], list[float | None]]:
    [series] = load_series(run, ["reward"])
    return series.iteration, series.y


def test_a_run_goes_to_its_end(project: Project, scenario: Scenario, tmp_path: Path) -> None:
    scenario("finish")
    run = make_run(project)
    run = supervise(claimed(run), tmp_path)
    assert (run.state, run.message) == ("finished", "The run reached its budget.")
    assert rewards(run) == ([1, 2, 3, 4, 5, 6], [1.1, 1.2, 1.3, 1.4, 1.5, 1.6])
    assert (run.iteration, run.total_iterations, run.versions) == (6, 6, {"fake": "1"})
    assert [t.target for t in run.transitions.all()] == ["queued", "starting", "running", "finished"]
    attempt = run.attempts.get()
    assert (attempt.exit_code, attempt.claim) == (0, "")
    assert attempt.byte_offset == path_of(attempt_uri(run.pk, 1, "events.jsonl")).stat().st_size


def test_a_stop_saves_and_can_be_resumed(project: Project, scenario: Scenario, tmp_path: Path) -> None:
    scenario("wait")
    run = make_run(project)

    def stop_when_running() -> None:
        now = Run.objects.get(pk=run.pk)
        if now.state == "running" and now.iteration == 3:
            request_stop(run=now)

    stopped = supervise(claimed(run), tmp_path, stop_when_running)
    assert (stopped.state, stopped.message) == ("stopped", "Stopped on request; the state was saved.")
    assert stopped.checkpoints.get().iteration == 2

    scenario("finish")
    add_attempt(run=stopped)
    resumed = supervise(claimed(Run.objects.get(pk=run.pk)), tmp_path)
    assert resumed.state == "finished"
    # Iteration 3 of the first attempt came after the checkpoint: the second one repeats it, and only that counts.
    assert rewards(resumed) == ([1, 2, 3, 4, 5, 6], [1.1, 1.2, 2.3, 2.4, 2.5, 2.6])
    assert events_of(resumed, "mark").get().iteration == 2


def test_who_does_not_leave_in_time_is_killed_with_its_children(
    project: Project, scenario: Scenario, tmp_path: Path, settings: Any
) -> None:
    scenario("stubborn")
    settings.STOP_GRACE_SECONDS = 30
    run = make_run(project)
    now = [0.0]
    folder = path_of(attempt_uri(run.pk, 1))

    def act() -> None:
        found = Run.objects.get(pk=run.pk)
        if found.iteration == 3 and (folder / "child.pid").exists() and found.stop_requested_at is None:
            request_stop(run=found)
        now[0] += 1.0

    stopped = supervise(claimed(run), tmp_path, act, clock=lambda: now[0])
    assert stopped.state == "stopped"
    assert "did not leave in time and was killed" in stopped.message
    assert run.attempts.get().exit_code == -9
    child = int((folder / "child.pid").read_text())
    assert not running(child)


def running(pid: int) -> bool:
    """A zombie of another parent does not run any more."""
    stat = Path(f"/proc/{pid}/stat")
    for _ in range(500):
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return False
        time.sleep(0.01)
    return True


def test_the_grace_is_twice_the_longest_iteration(project: Project, settings: Any, tmp_path: Path) -> None:
    from tests.webapp.making import scalars, send

    settings.STOP_GRACE_SECONDS = 60
    run = make_run(project)
    held = claimed(run)
    assert Supervisor(held, root=tmp_path)._patience() == 60.0
    send(held, [scalars(1, step_time=5.0), scalars(2, step_time=45.0), scalars(3, step_time=6.0)])
    # The keyword's name has no slash, so the series is called step_time.
    assert Supervisor(held, root=tmp_path)._patience() == 90.0


def test_a_nan_is_kept_and_the_reason_is_the_trainers(project: Project, scenario: Scenario, tmp_path: Path) -> None:
    scenario("numeric")
    run = supervise(claimed(make_run(project)), tmp_path)
    assert run.state == "failed"
    assert "NaN or infinite" in run.message
    assert run.message.endswith("loss is NaN at iteration 1")
    [series] = load_series(run, ["reward"])
    assert (series.y, series.nonfinite) == ([None], [(0, "nan")])


def test_a_crash_shows_the_end_of_the_log(project: Project, scenario: Scenario, tmp_path: Path) -> None:
    scenario("crash")
    run = supervise(claimed(make_run(project)), tmp_path)
    assert run.state == "failed"
    assert run.message.endswith("RuntimeError: shape mismatch")
    assert rewards(run)[0] == [1, 2]


def test_a_torn_last_line_costs_nothing_else(project: Project, scenario: Scenario, tmp_path: Path) -> None:
    scenario("killed")
    run = supervise(claimed(make_run(project, auto_resume=0)), tmp_path)
    assert (run.state, rewards(run)[0]) == ("failed", [1, 2])
    assert "ended by SIGKILL" in run.message
    assert "memory" in run.message


def test_a_trainer_that_cannot_be_started_is_a_clear_failure(project: Project, settings: Any, tmp_path: Path) -> None:
    settings.FILES_DIR = tmp_path
    settings.TRAINER_COMMAND = ["/nowhere/python"]
    run = supervise(claimed(make_run(project)), tmp_path)
    assert run.state == "failed"
    assert run.message.startswith("The trainer could not be started:")


@pytest.mark.usefixtures("inside_a_transaction")
def test_a_database_that_goes_away_and_comes_back_costs_nothing(
    project: Project, scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario("finish")
    real, failures = ingest.store, [3]

    def store(held: Claim, batch: ingest.Batch) -> Run:
        if failures[0]:
            failures[0] -= 1
            raise OperationalError("server closed the connection unexpectedly")
        return real(held, batch)

    monkeypatch.setattr(ingest, "store", store)
    run = supervise(claimed(make_run(project)), tmp_path)
    assert (run.state, failures) == ("finished", [0])
    assert rewards(run)[0] == [1, 2, 3, 4, 5, 6]


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_a_connection_that_the_server_ends_is_made_again(cast: Cast, scenario: Scenario, tmp_path: Path) -> None:
    if connection.vendor != "postgresql":
        pytest.fail("this test needs UNSQUEEZE_DATABASE_URL to be a PostgreSQL database")
    scenario("finish")
    ended: list[int] = []

    def act() -> None:
        if not ended:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                [pid] = cursor.fetchone()
            other = connection.copy()
            with other.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
            other.close()
            ended.append(pid)

    run = supervise(claimed(make_run(cast.project)), tmp_path, act)
    assert ended
    assert (run.state, rewards(run)[0]) == ("finished", [1, 2, 3, 4, 5, 6])


@pytest.mark.usefixtures("inside_a_transaction")
def test_a_commit_whose_answer_got_lost_is_not_stored_twice(
    project: Project, scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario("finish")
    real, answered = ingest.store, []

    def store(held: Claim, batch: ingest.Batch) -> Run:
        run = real(held, batch)
        if not answered:
            answered.append(True)
            raise OperationalError("server closed the connection unexpectedly")
        return run

    monkeypatch.setattr(ingest, "store", store)
    run = supervise(claimed(make_run(project)), tmp_path)
    assert run.state == "finished"
    assert events_of(run, "state").count() == 3


def test_a_supervisor_whose_claim_is_gone_ends_its_trainer_and_writes_nothing(
    project: Project, scenario: Scenario, tmp_path: Path
) -> None:
    scenario("wait")
    run = make_run(project)
    held = claimed(run)
    pids: list[int] = []

    def steal() -> None:
        found = Attempt.objects.get(pk=held.attempt_id)
        if found.pid and found.byte_offset:
            pids.append(found.pid)
            Attempt.objects.filter(pk=held.attempt_id).update(claim="someone else")

    now = [0.0]

    def act() -> None:
        steal()
        now[0] += 1.0

    found = supervise(held, tmp_path, act, clock=lambda: now[0])
    assert found.state == "running"
    assert not Path(f"/proc/{pids[0]}").exists()


def test_a_worker_that_leaves_gives_its_run_back_to_the_queue(
    project: Project, scenario: Scenario, tmp_path: Path
) -> None:
    scenario("wait")
    run = make_run(project)

    def act() -> None:
        if Run.objects.get(pk=run.pk).iteration == 3:
            leaving.set()

    waiting = supervise(claimed(run), tmp_path, act)
    assert (waiting.state, waiting.attempt_number, waiting.auto_resumes) == ("queued", 2, 0)
    first = run.attempts.get(number=1)
    assert (first.state, first.message) == (
        "stopped",
        "Stopped, because its worker was shut down; the state was saved.",
    )
    assert run.attempts.get(number=2).not_before is None

    leaving.clear()
    scenario("finish")
    done = supervise(claimed(waiting), tmp_path)
    assert done.state == "finished"
    assert rewards(done) == ([1, 2, 3, 4, 5, 6], [1.1, 1.2, 2.3, 2.4, 2.5, 2.6])


def test_a_line_that_is_no_event_is_told_and_skipped(project: Project, settings: Any, tmp_path: Path) -> None:
    from tests.webapp.making import lines, scalars

    settings.FILES_DIR = tmp_path
    run = make_run(project)
    held = claimed(run)
    path = tail.events_path(run.pk, 1)
    path.parent.mkdir(parents=True)
    good = lines(run.pk, [scalars(1, reward=0.5)])
    path.write_bytes(b'{"kind": "nonsense"}\n' + good + b"\n" + good[:30])
    tail.drain(held)
    assert rewards(Run.objects.get(pk=run.pk)) == ([1], [0.5])
    assert "Line at byte 0 of events.jsonl is no event" in log_tail(run)[0]["message"]
    assert Attempt.objects.get(pk=held.attempt_id).byte_offset == path.stat().st_size - 30


def test_a_line_longer_than_a_batch_is_read(
    project: Project, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.webapp.making import lines
    from trainer.contract import events as ev

    settings.FILES_DIR = tmp_path
    monkeypatch.setattr(tail, "BATCH_BYTES", 64)
    run = make_run(project)
    held = claimed(run)
    path = tail.events_path(run.pk, 1)
    path.parent.mkdir(parents=True)
    path.write_bytes(lines(run.pk, [ev.Log(message="x" * 1000), ev.Log(message="short")]))
    tail.drain(held)
    assert [row["message"] for row in log_tail(run)] == ["x" * 1000, "short"]


def test_the_parent_pipe_ends_a_trainer_whose_supervisor_is_gone(
    project: Project, scenario: Scenario, tmp_path: Path
) -> None:
    from webapp.launch.process import start_trainer

    scenario("wait")
    run = make_run(project)
    held = claimed(run)
    process, pipe = start_trainer(run, held, root=tmp_path)
    pipe.close()
    assert process.wait(timeout=20) == 10
    assert os.path.exists(path_of(attempt_uri(run.pk, 1, "checkpoints")))
