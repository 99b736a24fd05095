"""The storm's verdict passes a run that was killed and resumed, and sees every single thing that is then falsified."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from django.db import transaction

from tests.conftest import Cast
from tests.installed.documents import rl
from tests.storm.record import whole_record_of
from tests.storm.verdict import faults_of
from tests.webapp.making import claimed
from trainer.contract import events as ev
from trainer.contract.exit_codes import ExitCode
from trainer.loop.run import Attempt, run_attempt
from webapp.evals.models import Evaluation
from webapp.launch.services import launch_run, resume_run
from webapp.launch.tail import drain, events_path
from webapp.metrics.models import AxisRow, Point, Series
from webapp.rollouts.models import RolloutPart
from webapp.runs.models import EventRow, Run
from webapp.runs.services import finish
from webapp.runs.states import RunState
from webapp.runs.storage import path_of

DOCUMENT = rl(budget={"iterations": 6}, checkpoints={"every": 2}, evaluation=rl()["evaluation"] | {"every": 3})
WHOLE, KILLED = "undisturbed", "disturbed"
Falsify = Callable[[Run], Any]


class Killed(BaseException):
    """In place of SIGKILL: nothing catches it, nothing is written after it."""


def killed_after(iteration: int) -> Callable[[Any], None]:
    def echo(event: Any) -> None:
        if isinstance(event, ev.Scalars) and event.axes.iteration == iteration:
            raise Killed

    return echo


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file storage with an undisturbed run, and one of the same document that was killed in iteration 5 and resumed."""
    files = tmp_path_factory.mktemp("files")
    threads = torch.get_num_threads()

    def attempt(name: str, number: int, **options: Any) -> ExitCode:
        folder = files / "runs" / name
        never = {"stop": lambda: False, "resume": number > 1, **options}
        return run_attempt(DOCUMENT, Attempt(run=folder, number=number, files=files / name, **never))

    assert attempt(WHOLE, 1) == ExitCode.FINISHED
    with pytest.raises(Killed):
        attempt(KILLED, 1, echo=killed_after(5))
    assert attempt(KILLED, 2) == ExitCode.FINISHED
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)
    return files


def stored(cast: Cast, name: str, *states: RunState) -> Run:
    """The run with what its attempts wrote in the database; `states` are their endings."""
    run = launch_run(cast.project, None, DOCUMENT, run_id=name)
    for number, state in enumerate(states, start=1):
        if number > 1:
            resume_run(run, None)
        held = claimed(Run.objects.get(pk=name))
        drain(held)
        finish(held, to=state, exit_code=0, reason="")
    return Run.objects.get(pk=name)


@pytest.fixture
def undisturbed(cast: Cast, settings: Any, trained: Path, tmp_path: Path) -> dict[str, Any]:
    settings.FILES_DIR = tmp_path / "files"
    shutil.copytree(trained, settings.FILES_DIR)
    record: dict[str, Any] = json.loads(json.dumps(whole_record_of(stored(cast, WHOLE, RunState.FINISHED))))
    return record


@pytest.fixture
def disturbed(cast: Cast, undisturbed: dict[str, Any]) -> Run:
    return stored(cast, KILLED, RunState.LOST, RunState.FINISHED)


def test_a_run_that_was_killed_and_resumed_passes(disturbed: Run, undisturbed: dict[str, Any]) -> None:
    assert len(undisturbed["series"]["reward"][0]) == 6
    assert sorted(undisturbed["checkpoints"]) == ["2", "4", "6"]
    assert [mark.iteration for mark in EventRow.objects.filter(run=disturbed, key="rewind")] == [4]
    assert faults_of(disturbed, undisturbed) == []


def lose(rows: Any) -> None:
    """Deletes one row."""
    assert type(rows[0]).objects.filter(pk=rows[0].pk).delete()[0] >= 1


def points(run: Run) -> Any:
    return Point.objects.filter(series__run=run, series__key="reward", iteration=2)


def change_a_value(run: Run) -> None:
    assert points(run).update(value=0.123) == 1


def double_a_log_line(run: Run) -> None:
    row = EventRow.objects.filter(run=run, kind="state")[0]
    row.pk = None
    row.save(force_insert=True)


def count_one_more(run: Run) -> None:
    one = Evaluation.objects.filter(run=run, iteration=3)[0]
    one.counts["c"][0] = 4 - one.counts["c"][0]
    one.save()


def unhide(run: Run) -> None:
    assert AxisRow.objects.filter(run=run, attempt=1, iteration=5).count() == 1
    assert run.attempts.filter(number=1).update(kept_until=5) == 1


def cut_an_event(run: Run) -> None:
    """One line less in the file, and the database none the wiser."""
    path = events_path(run.pk, 2)
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[7]
    path.write_bytes(b"".join(lines))
    run.attempts.filter(number=2).update(byte_offset=path.stat().st_size)


def add_an_event(run: Run) -> None:
    path = events_path(run.pk, 2)
    path.write_bytes(path.read_bytes() + path.read_bytes().splitlines(keepends=True)[-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def final_folder(run: Run) -> Path:
    return path_of(run.checkpoints.get(final=True).uri)


def flip_a_weight(run: Run) -> None:
    flip(final_folder(run) / "policies/policy/model.safetensors")


def other_weights(run: Run) -> None:
    """A manifest and a row that agree with each other, and not with the undisturbed run."""
    manifest = final_folder(run) / "manifest.json"
    content = json.loads(manifest.read_text()) | {"weights_hash": "0" * 64}
    manifest.write_text(json.dumps(content))
    run.checkpoints.filter(final=True).update(weights_hash="0" * 64)


def swap_a_part(run: Run) -> None:
    part = RolloutPart.objects.filter(run=run, retired=False)[0]
    other = RolloutPart.objects.filter(run=run, retired=False)[1]
    shutil.copyfile(path_of(other.uri), path_of(part.uri))


def remove_the_files(run: Run) -> None:
    shutil.rmtree(final_folder(run))


FALSIFIED: list[tuple[Falsify, str]] = [
    (lambda run: lose(points(run)), "point ('reward', 2, 1) is missing"),
    (change_a_value, "series[reward][1][1]: 0.123, expected"),
    (lambda run: lose(AxisRow.objects.filter(run=run, iteration=3)), "live iterations are not 0 to 6: missing [3]"),
    (lambda run: lose(Evaluation.objects.filter(run=run, iteration=3)), "is missing (1 such)"),
    (count_one_more, "evaluations[1][4][c][0]"),
    (lambda run: lose(RolloutPart.objects.filter(run=run, iteration=2)), "rollout_rows[2] is missing"),
    (swap_a_part, "are not the 4 rollouts of"),
    (lambda run: lose(run.checkpoints.filter(iteration=2)), "checkpoints[2] is missing"),
    (lambda run: lose(EventRow.objects.filter(run=run, kind="mark")), "event (2, 'mark', 'rewind', 4"),
    (lambda run: lose(run.transitions.filter(target="running")), "transition running → lost after starting"),
    (double_a_log_line, "event (1, 'state', '', None, 'starting'): 2, its event says 1"),
    (lambda run: Series.objects.filter(run=run, key="loss").update(last_value=9.0), "its newest value is kept as"),
    (unhide, "attempt 1 counts up to 5, expected 4"),
    (cut_an_event, "seq 9 of trainer follows 7"),
    (add_an_event, "1 lines of events.jsonl are not in the database"),
    (flip_a_weight, "model.safetensors is missing or differs from the manifest"),
    (other_weights, "final[0][1]: '0000"),
    (remove_the_files, "has no manifest"),
    (lambda run: run.attempts.update(superseded=False), "attempt 1 is not superseded"),
    (lambda run: Run.objects.filter(pk=run.pk).update(state=RunState.LOST), "it is lost, expected finished"),
]


def test_it_sees_whatever_is_falsified(
    disturbed: Run, undisturbed: dict[str, Any], trained: Path, settings: Any
) -> None:
    unseen = []
    for falsify, told in FALSIFIED:
        with transaction.atomic():
            falsify(Run.objects.get(pk=disturbed.pk))
            found = faults_of(Run.objects.get(pk=disturbed.pk), undisturbed)
            transaction.set_rollback(True)
        shutil.rmtree(settings.FILES_DIR)
        shutil.copytree(trained, settings.FILES_DIR)
        if not any(told in one for one in found):
            unseen.append((told, found))
    assert not unseen
    assert faults_of(disturbed, undisturbed) == []
