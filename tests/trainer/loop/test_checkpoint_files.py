"""Which checkpoints a run has, which are refused and what is offered instead, and which are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.no_room import no_room
from trainer.contract import events as ev
from trainer.contract.exit_codes import ExitCode
from trainer.core.errors import CheckpointError
from trainer.loop import checkpoint_files as files
from trainer.testing.replay import events_of, story_of


def make(run: Path, attempt: int, iteration: int, *, accuracy: float | None = None) -> Path:
    """A small complete checkpoint folder."""
    folder = run / f"attempts/{attempt}/checkpoints/it-{iteration:08d}"
    (folder / "policies").mkdir(parents=True)
    (folder / "policies/model.safetensors").write_bytes(b"weights")
    manifest: dict[str, Any] = {
        "files": {"policies/model.safetensors": files.entry_of(folder / "policies/model.safetensors")}
    }
    if accuracy is not None:
        manifest["metrics"] = {"eval/accuracy": accuracy}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def names(folders: list[Path]) -> list[str]:
    return [f"{f.parents[1].name}:{files.iteration_of(f)}" for f in folders]


def test_a_whole_checkpoint_verifies(tmp_path: Path) -> None:
    assert files.verify(make(tmp_path, 1, 2))["files"]["policies/model.safetensors"]["size"] == 7


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"weigh", "was cut short: found 5 bytes, expected 7"),
        (b"weights!", "has grown: found 8 bytes, expected 7"),
        (b"weightz", "was changed: found sha256 2b"),
        (None, "is missing, expected 7 bytes"),
    ],
)
def test_a_damaged_file_is_named_with_what_was_found_and_expected(
    tmp_path: Path, data: bytes | None, said: str
) -> None:
    folder = make(tmp_path, 1, 2)
    path = folder / "policies/model.safetensors"
    path.unlink() if data is None else path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"file 'policies/model.safetensors' ") as error:
        files.verify(folder)
    assert said.removesuffix("2b") in str(error.value)


def test_a_file_that_the_manifest_does_not_list_is_refused(tmp_path: Path) -> None:
    folder = make(tmp_path, 1, 2)
    (folder / "policies/pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"pytorch_model.bin' is not in its manifest"):
        files.verify(folder)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": 3}'])
def test_a_manifest_that_says_nothing_makes_no_checkpoint(tmp_path: Path, text: str) -> None:
    folder = make(tmp_path, 1, 2)
    (folder / "manifest.json").write_text(text)
    with pytest.raises(CheckpointError, match="is not a complete checkpoint"):
        files.verify(folder)


def test_what_a_later_attempt_went_back_before_counts_no_more(tmp_path: Path) -> None:
    for iteration in (10, 20, 30):
        make(tmp_path, 1, iteration)
    (tmp_path / "attempts/2").mkdir()
    files.note_rewind(tmp_path / "attempts/2", 20)
    newest = files.newest_checkpoint(tmp_path)
    assert newest is not None
    assert names([newest]) == ["1:20"]
    make(tmp_path, 2, 25)
    assert names([f for f, counts in files.checkpoints_of(tmp_path) if counts]) == ["2:25", "1:20", "1:10"]
    assert names(files.expired(tmp_path, keep=2, keep_best=0, metric="eval/accuracy")) == ["1:30", "1:10"]


@pytest.mark.parametrize("text", ["", '{"iter'])
def test_a_note_that_a_full_disk_left_empty_bars_no_run(tmp_path: Path, text: str) -> None:
    make(tmp_path, 1, 10)
    (tmp_path / "attempts/2").mkdir()
    (tmp_path / "attempts/2/rewind.json").write_text(text)
    newest = files.newest_checkpoint(tmp_path)
    assert newest is not None
    assert names([newest]) == ["1:10"]


def test_a_note_for_which_there_is_no_room_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "attempts/2").mkdir(parents=True)
    with no_room(), pytest.raises(OSError, match="too large"):
        files.note_rewind(tmp_path / "attempts/2", 10)
    assert list((tmp_path / "attempts/2").iterdir()) == []


def test_the_newest_and_the_best_are_kept_over_all_attempts(tmp_path: Path) -> None:
    for iteration, accuracy in ((10, 0.5), (20, 0.75), (30, None)):
        make(tmp_path, 1, iteration, accuracy=accuracy)
    (tmp_path / "attempts/2").mkdir()
    files.note_rewind(tmp_path / "attempts/2", 30)
    make(tmp_path, 2, 40, accuracy=0.75)
    make(tmp_path, 2, 50, accuracy=0.25)
    # 20 and 40 are equally good: the newer one is the best.
    assert names(files.expired(tmp_path, keep=1, keep_best=1, metric="eval/accuracy")) == ["1:30", "1:20", "1:10"]
    assert names(files.expired(tmp_path, keep=1, keep_best=2, metric="eval/accuracy")) == ["1:30", "1:10"]
    assert names(files.expired(tmp_path, keep=1, keep_best=1, metric="unknown")) == ["2:40", "1:30", "1:20", "1:10"]


def damage(folder: Path) -> None:
    path = folder / "policies/policy/model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


@pytest.fixture
def stopped(run, document, tmp_path: Path) -> Path:  # type: ignore[no-untyped-def]
    """A run with checkpoints of iterations 2 and 4, stopped at iteration 4 or 5."""
    folder, asked = tmp_path / "r", iter(range(1000))

    def stop() -> bool:
        next(asked)
        return files.newest_checkpoint(folder) is not None and files.newest_checkpoint(folder).name == "it-00000004"  # type: ignore[union-attr]

    assert run(document(), folder, stop=stop) == ExitCode.STOPPED
    assert names([f for f, _ in files.checkpoints_of(folder)]) == ["1:4", "1:2"]
    return folder


def rewinds_of(folder: Path) -> list[ev.Mark]:
    marks = [e.event for e in events_of(folder) if isinstance(e.event, ev.Mark)]
    return [mark for mark in marks if mark.mark == "rewind"]


def test_a_damaged_one_is_refused_and_the_older_one_offered(run, document, stopped: Path) -> None:  # type: ignore[no-untyped-def]
    newest = files.newest_checkpoint(stopped)
    assert newest is not None
    damage(newest)
    assert run(document(), stopped, resume=True) == ExitCode.STORAGE
    message = story_of(stopped).last_message
    assert "file 'policies/policy/model.safetensors' was cut short: found" in message
    assert "iteration 2 is complete: resume with --checkpoint attempts/1/checkpoints/it-00000002" in message
    refused = [e.event for e in events_of(stopped) if isinstance(e.event, ev.CheckpointRefused)]
    assert [r.uri for r in refused] == ["attempts/1/checkpoints/it-00000004"]
    older = stopped / "attempts/1/checkpoints/it-00000002"
    assert run(document(), stopped, resume=True, checkpoints=(older,)) == ExitCode.FINISHED
    assert [mark.iteration for mark in rewinds_of(stopped)] == [2]


def test_given_several_the_first_whole_one_is_taken_and_that_is_told(run, document, stopped: Path) -> None:  # type: ignore[no-untyped-def]
    both = [f for f, _ in files.checkpoints_of(stopped)]
    damage(both[0])
    assert run(document(), stopped, resume=True, checkpoints=tuple(both)) == ExitCode.FINISHED
    [mark] = rewinds_of(stopped)
    assert mark.iteration == 2
    assert "because a newer checkpoint was refused" in mark.message
    assert "was cut short" in mark.message


def test_from_the_start_whatever_was_saved(run, document, stopped: Path) -> None:  # type: ignore[no-untyped-def]
    assert run(document(), stopped, resume=True, checkpoints=()) == ExitCode.FINISHED
    assert [mark.iteration for mark in rewinds_of(stopped)] == [-1]
    # The first attempt's are retired by that, and retention took them.
    assert names([f for f, _ in files.checkpoints_of(stopped)]) == ["2:7", "2:6"]


def test_checkpoints_know_the_validation_of_their_weights(run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    changes = {"checkpoints": {"every": 1, "keep": 1, "keep_best": 100}}
    assert run(document(**changes), tmp_path / "r") == ExitCode.FINISHED
    made = [e.event for e in events_of(tmp_path / "r") if isinstance(e.event, ev.Checkpoint)]
    # Validated every 3 iterations and at the end.
    assert [c.axes.iteration for c in made if "eval/accuracy" in c.metrics] == [3, 6, 7]
    assert names([f for f, _ in files.checkpoints_of(tmp_path / "r")]) == ["1:7", "1:6", "1:3"]
