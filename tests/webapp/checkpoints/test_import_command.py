"""A model folder becomes a base of a project, or a sentence says why not."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from webapp.checkpoints.models import Checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return tmp_path


def test_a_folder_is_imported_once(cast, folder: Path) -> None:  # type: ignore[no-untyped-def]
    for _ in range(2):
        call_command("import_checkpoint", "lab/countdown", folder, "--name", "mine", stdout=StringIO())
    made = Checkpoint.objects.get(project=cast.project)
    assert made.name == "mine"


def test_an_unknown_project_is_answered_with_the_known_ones(cast, folder: Path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(CommandError, match="lab/countdown"):
        call_command("import_checkpoint", "lab/nothing", folder)


def test_a_folder_without_a_model_is_refused(cast, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(CommandError, match=r"config\.json"):
        call_command("import_checkpoint", "lab/countdown", tmp_path)
