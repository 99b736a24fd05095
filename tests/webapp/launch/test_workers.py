"""Workers sign in, are drained, and are shown; slots and devices are never shared."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from tests.conftest import Cast
from tests.webapp.launch.conftest import FAKE
from tests.webapp.making import claimed, document, make_run
from webapp.launch import here, tasks, workers
from webapp.launch.models import Worker
from webapp.launch.selectors import queue_names, served_queues, waiting_for
from webapp.launch.services import launch_run
from webapp.launch.slots import ANYWHERE, NoSlot, Slot, Slots, slots_of
from webapp.projects.models import Project
from webapp.runs.models import Run

GONE = 2**22 - 1  # above the kernel's largest process id


def signed_in(name: str = "gpu1", *, queues: tuple[str, ...] = ("default",), **told: Any) -> Worker:
    defaults = {"host": "elsewhere", "pid": 1, "version": "1", "slots": 1, "devices": []}
    return workers.sign_in(name=name, queues=queues, **{**defaults, **told})


@pytest.fixture
def at_work(db: None) -> Iterator[Worker]:
    """This process as a signed-in worker."""
    row = signed_in()
    before = here.slots()
    here.become(row, Slots(worker=row.name, slots=[ANYWHERE]))
    yield row
    here.become(None, before)


def test_two_live_workers_never_have_one_name(db: None) -> None:
    assert [signed_in().name for _ in range(3)] == ["gpu1", "gpu1-2", "gpu1-3"]
    Worker.objects.filter(name="gpu1-2").update(seen_at=timezone.now() - timedelta(seconds=61))
    assert signed_in().name == "gpu1-2"
    workers.sign_out(Worker.objects.get(name="gpu1"))
    assert signed_in().name == "gpu1"
    assert signed_in().name == "gpu1-4"


def test_a_worker_whose_process_is_gone_gives_its_name_back_at_once(db: None) -> None:
    here_host = socket.gethostname()
    assert signed_in(host=here_host, pid=os.getpid()).name == "gpu1"
    assert signed_in(host=here_host, pid=GONE).name == "gpu1-2"
    assert signed_in(host=here_host, pid=os.getpid()).name == "gpu1-2"


def test_a_process_that_lost_its_name_notices(db: None) -> None:
    first = signed_in()
    workers.sign_out(first)
    second = signed_in()
    assert workers.beat(first) is None
    assert workers.beat(second) == second
    workers.sign_out(first)
    assert Worker.objects.get().stopped_at is None


def test_workers_that_are_gone_for_a_week_are_forgotten(db: None) -> None:
    signed_in("old"), signed_in("new")
    Worker.objects.filter(name="old").update(seen_at=timezone.now() - timedelta(days=8))
    assert workers.forget() == 1
    assert Worker.objects.get().name == "new"


def test_a_drained_worker_takes_nothing_and_takes_it_again(
    at_work: Worker, project: Project, settings: Any, tmp_path: Path
) -> None:
    settings.FILES_DIR, settings.TRAINER_COMMAND = tmp_path, [sys.executable, "-S", str(FAKE), "finish"]
    run = make_run(project)
    call_command("drain", "gpu1", stdout=StringIO())
    tasks.supervise(run.attempts.get().pk)
    assert Run.objects.get(pk=run.pk).state == "queued"
    assert served_queues() == set()
    call_command("drain", "gpu1", "--undo", stdout=StringIO())
    tasks.supervise(run.attempts.get().pk)
    assert Run.objects.get(pk=run.pk).state == "finished"
    assert run.attempts.get().worker == "gpu1/slot 0"
    with pytest.raises(CommandError, match="there is no worker 'gpu2'; known are gpu1"):
        call_command("drain", "gpu2")


def test_a_worker_is_told_once_that_it_is_drained(db: None) -> None:
    row = signed_in()
    told: list[bool] = []
    presence = here.Presence(row, on_drain=told.append)
    presence.sign()
    workers.set_draining(name=row.name, draining=True)
    presence.sign()
    presence.sign()
    workers.set_draining(name=row.name, draining=False)
    presence.sign()
    assert told == [True, False]


def test_a_slot_is_free_again_only_when_its_trainer_has_left() -> None:
    slots = Slots(worker="w", slots=[Slot(0, "0"), Slot(1, "1")])
    with slots.taken() as first, slots.taken() as second:
        assert {first.device, second.device} == {"0", "1"}
        assert slots.place(second).name == f"w/slot {second.number}"
        with pytest.raises(NoSlot), slots.taken():
            pass
    with pytest.raises(RuntimeError), slots.taken():
        raise RuntimeError
    with slots.taken(), slots.taken():
        pass


def test_a_run_stays_queued_when_every_slot_is_taken(at_work: Worker, project: Project) -> None:
    run = make_run(project)
    with here.slots().taken():
        tasks.supervise(run.attempts.get().pk)
    assert Run.objects.get(pk=run.pk).state == "queued"


def test_a_device_stays_locked_for_as_long_as_a_trainer_lives(tmp_path: Path) -> None:
    [slot] = slots_of(count=1, devices=["3"], locks=tmp_path)
    assert slot.lock is not None
    # A trainer that outlives its worker: it has the lock's descriptor, the worker's own is closed.
    trainer = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(slot.lock,))
    os.close(slot.lock)
    [path] = tmp_path.iterdir()
    with path.open() as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        trainer.communicate()
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_slots_without_devices_show_their_trainers_none(tmp_path: Path) -> None:
    assert slots_of(count=2, devices=[], locks=tmp_path) == [Slot(0, ""), Slot(1, "")]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--slots", "2", "--devices", "0"), "--slots is 2 and --devices names 1"),
        (("--slots", "0"), "expected one slot for each device, at least one"),
        (("--devices", "0,0"), "expected different names"),
        (("--queues", "a b"), "--queues is 'a b'"),
    ],
)
def test_a_worker_says_what_is_wrong_with_its_options(arguments: tuple[str, ...], told: str) -> None:
    with pytest.raises(CommandError, match=told):
        call_command("worker", *arguments)


def test_a_run_names_a_queue_that_somebody_knows(cast: Cast, settings: Any) -> None:
    settings.QUEUES = ["default", "h200"]
    signed_in(queues=("a100", "default"))
    assert queue_names() == ["default", "h200", "a100"]
    run = launch_run(cast.project, cast["member"], document(), queue="h200")
    assert run.queue == "h200"
    with pytest.raises(ValidationError, match=r"found 'h100'; known queues are default, h200, a100"):
        launch_run(cast.project, cast["member"], document(), queue="h100")
    assert Run.objects.count() == 1


def reasons(cast: Cast, who: str = "member") -> list[tuple[str, str]]:
    return [(row.run.name if row.run else "", row.why) for row in waiting_for(cast[who])]


def test_the_queue_says_in_which_order_and_why_runs_wait(cast: Cast) -> None:
    signed_in("gpu1", queues=("h200",))
    signed_in("cpu1")
    signed_in("cpu2", queues=("slow",))
    workers.set_draining(name="cpu2", draining=True)
    held = make_run(cast.project, name="runs", queue="h200")
    claimed(held, worker="gpu1/slot 0")
    for name, queue in (("first", "h200"), ("second", "default"), ("third", "slow"), ("fourth", "none")):
        make_run(cast.project, name=name, queue=queue)
    assert reasons(cast) == [
        ("first", "Every slot of the queue h200 is taken."),
        ("second", "A worker will take it in a moment."),
        ("third", "Every worker of the queue slow is being drained."),
        ("fourth", "No live worker serves the queue none."),
    ]
    assert [name for name, _ in reasons(cast, "outsider")] == ["", "", "", ""]


def test_the_page_names_only_runs_of_ones_own_teams(cast: Cast, client_of: Callable[[str], Client]) -> None:
    signed_in("gpu1")
    claimed(make_run(cast.project, name="held by gpu1"), worker="gpu1/slot 0")
    make_run(cast.project, name="waits here")
    ours = client_of("viewer").get(f"/p/{cast.team.slug}/{cast.project.slug}/queue").content.decode()
    assert "held by gpu1" in ours
    assert "waits here" in ours
    theirs = client_of("outsider").get(f"/p/{cast.other_team.slug}/{cast.other_project.slug}/queue").content.decode()
    assert "held by gpu1" not in theirs
    assert "waits here" not in theirs
    assert "A run of another team" in theirs
    assert "1 of other teams" in theirs
