"""An attempt that a later one has taken over stops by itself and saves nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainer.contract import events as ev
from trainer.contract.exit_codes import ExitCode
from trainer.core.errors import Superseded
from trainer.loop import checkpoint
from trainer.loop.fence import Fence
from trainer.testing.replay import events_of


def test_it_looks_once_a_second_unless_asked(tmp_path: Path) -> None:
    now = [0.0]
    (tmp_path / "2").mkdir()
    fence = Fence(tmp_path / "2", clock=lambda: now[0])
    for other in ("1", "notes", "10"):
        (tmp_path / other).mkdir()
    now[0] = 0.9
    fence.check()
    with pytest.raises(Superseded, match="attempt 10 of this run has begun; attempt 2 saves nothing more"):
        fence.check(now=True)
    now[0] = 1.8
    fence.check()
    now[0] = 2.0
    with pytest.raises(Superseded):
        fence.check()


def test_earlier_attempts_and_other_files_are_no_successors(tmp_path: Path) -> None:
    for name in ("1", "2", "later", "3.partial"):
        (tmp_path / name).mkdir()
    Fence(tmp_path / "2").check(now=True)


def test_a_run_whose_next_attempt_begins_ends_without_a_checkpoint(run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "r"

    def stop() -> bool:
        (folder / "attempts" / "2").mkdir(exist_ok=True)
        return False

    assert run(document(checkpoints={"every": 1}), folder, stop=stop) == ExitCode.SUPERSEDED
    assert not list(folder.glob("attempts/1/checkpoints/*"))
    (folder / "attempts" / "2").rmdir()
    last = events_of(folder)[-1].event
    assert isinstance(last, ev.State)
    assert "attempt 2 of this run has begun" in last.message


def test_a_trainer_that_slept_while_it_wrote_a_checkpoint_gives_it_no_name(  # type: ignore[no-untyped-def]
    run, document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "r"
    saved = checkpoint.save_policy

    def save_and_sleep(policy: Any, where: Path) -> None:
        saved(policy, where)
        (folder / "attempts" / "2").mkdir(exist_ok=True)

    monkeypatch.setattr(checkpoint, "save_policy", save_and_sleep)
    assert run(document(checkpoints={"every": 1}), folder) == ExitCode.SUPERSEDED
    assert not list(folder.glob("attempts/1/checkpoints/*"))
