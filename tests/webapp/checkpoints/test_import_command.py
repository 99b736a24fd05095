"""A model folder becomes a base of a project, or a sentence says why not."""

from __future__ import annotations

import hashlib
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from tests.webapp.models import model_folder
from webapp.checkpoints import uploading
from webapp.checkpoints.manifests import verify
from webapp.checkpoints.models import Checkpoint


@pytest.fixture
def folder(settings, tmp_path: Path) -> Path:  # type: ignore[no-untyped-def]
    settings.FILES_DIR = tmp_path / "files"
    return model_folder(tmp_path / "model")


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


def test_an_upload_that_broke_off_goes_on_where_it_broke(cast, folder: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    append, sent = uploading.append, []

    def breaks(*, name: str, offset: int, data, **rest) -> int:  # type: ignore[no-untyped-def]
        sent.append((name, offset))
        if name == "model.safetensors" and offset == 0:
            append(name=name, offset=0, data=[next(iter(data))[:50]], **rest)
            raise KeyboardInterrupt
        return append(name=name, offset=offset, data=data, **rest)

    monkeypatch.setattr(uploading, "append", breaks)
    with pytest.raises(KeyboardInterrupt):
        call_command("upload_checkpoint", "lab/countdown", folder)
    out = StringIO()
    call_command("upload_checkpoint", "lab/countdown", folder, stdout=out)
    assert sent[-1] == ("model.safetensors", 50)
    made = Checkpoint.objects.get(project=cast.project)
    assert out.getvalue().splitlines() == [
        "config.json goes on at byte 23.", "model.safetensors goes on at byte 50.", f"model: {made.policy_uri}",
    ]  # fmt: skip
    verify(made.uri)


def test_a_file_that_was_changed_meanwhile_is_refused(cast, folder: Path) -> None:  # type: ignore[no-untyped-def]
    other = model_folder(folder.parent / "other", b"\1" * 8)
    begun = {path.name: {"size": path.stat().st_size} for path in other.iterdir()}
    digest = hashlib.sha256((other / "model.safetensors").read_bytes()).hexdigest()
    begun["model.safetensors"]["sha256"] = digest
    uploading.start(project=cast.project, user=None, name="model", files=begun)
    with pytest.raises(CommandError, match=r"model\.safetensors: found sha256"):
        call_command("upload_checkpoint", "lab/countdown", folder)
    assert not Checkpoint.objects.exists()


@pytest.mark.parametrize("command", ["import_checkpoint", "upload_checkpoint"])
def test_weights_that_would_be_unpickled_are_refused(command: str, cast, folder: Path) -> None:  # type: ignore[no-untyped-def]
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CommandError, match=r"pytorch_model\.bin, which may run code"):
        call_command(command, "lab/countdown", folder)
