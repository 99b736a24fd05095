"""A small file is there whole, or as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer.no_room import no_room
from trainer.contract.files import write_whole


def test_a_file_takes_the_place_of_the_older_one_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    write_whole(path, "old")
    with path.open() as reader:
        write_whole(path, "new ü")
        # Who is reading reads what there was.
        assert reader.read() == "old"
    assert path.read_text(encoding="utf-8") == "new ü"


def test_without_room_the_older_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    write_whole(path, "old")
    with no_room(), pytest.raises(OSError, match="too large"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
