"""A trainer that is a real process but trains nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from webapp.launch.shutdown import leaving

FAKE = Path(__file__).with_name("fake_trainer.py")
Scenario = Callable[[str], None]


@pytest.fixture
def scenario(settings: Any, tmp_path: Path) -> Scenario:
    settings.FILES_DIR = tmp_path

    def choose(name: str) -> None:
        settings.TRAINER_COMMAND = [sys.executable, "-S", str(FAKE), name]

    return choose


@pytest.fixture(autouse=True)
def nobody_leaves() -> Iterator[None]:
    leaving.clear()
    yield
    leaving.clear()
