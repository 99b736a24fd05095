"""What is taken in from a folder or a GGUF file, and what is refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.core.exceptions import ValidationError

from tests.conftest import Cast
from tests.webapp.models import gguf_file, model_folder, weights
from webapp.checkpoints.importing import import_checkpoint
from webapp.checkpoints.layout import check_names
from webapp.checkpoints.manifests import Damaged, read_manifest, verify
from webapp.runs.storage import path_of


@pytest.fixture(autouse=True)
def _files(settings, tmp_path: Path) -> None:
    settings.FILES_DIR = tmp_path / "files"


def test_an_imported_folder_has_a_manifest_and_verifies(cast: Cast, tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model")
    (folder / "README.md").write_text("not part of the model")
    (folder / ".cache").write_text("hidden")
    made = import_checkpoint(project=cast.project, folder=folder, name="Base")
    assert [(entry.name, entry.size) for entry in read_manifest(made.uri)] == [
        ("config.json", 23),
        ("model.safetensors", 76),
    ]
    verify(made.uri)
    path = path_of(made.uri) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    verify(made.uri, hashes=False)
    with pytest.raises(Damaged, match=r"file 'model.safetensors' was changed: found sha256 \w{64}, expected \w{64}"):
        verify(made.uri)
    path.write_bytes(b"short")
    with pytest.raises(Damaged, match="was cut short: found 5 bytes, expected 76"):
        verify(made.uri, hashes=False)


def test_an_import_whose_files_are_gone_brings_them_back(cast: Cast, tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model")
    made = import_checkpoint(project=cast.project, folder=folder, name="Base")
    (path_of(made.uri) / "model.safetensors").unlink()
    assert import_checkpoint(project=cast.project, folder=folder, name="Base") == made
    verify(made.uri)


def test_shards_with_their_index(cast: Cast, tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model-00001-of-00002.safetensors").write_bytes(weights(b"one"))
    with pytest.raises(ValidationError, match=r"names model-00002-of-00002.safetensors, which is not there"):
        import_checkpoint(project=cast.project, folder=folder, name="x")
    (folder / "model-00002-of-00002.safetensors").write_bytes(weights(b"two"))
    assert import_checkpoint(project=cast.project, folder=folder, name="x").details["format"] == "safetensors"


def test_pickled_weights_are_refused_with_the_reason(cast: Cast, tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ValidationError, match=r"pytorch_model.bin, which may run code when opened") as refused:
        import_checkpoint(project=cast.project, folder=folder, name="x")
    assert refused.value.code == "pickle"


def test_a_weights_file_that_was_cut_short_is_refused(cast: Cast, tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(weights()[:-3])
    with pytest.raises(ValidationError, match="has 73 bytes, but its table says 76"):
        import_checkpoint(project=cast.project, folder=folder, name="x")


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, b"\2" + b"\0" * 7 + b"[]", b"\2" + b"\0" * 7 + b"{"])
def test_what_is_no_safetensors_file_is_refused(cast: Cast, tmp_path: Path, data: bytes) -> None:
    folder = model_folder(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(ValidationError, match=r"model.safetensors is no safetensors file"):
        import_checkpoint(project=cast.project, folder=folder, name="x")


def test_a_gguf_file_stays_what_it_is_and_tells_about_itself(cast: Cast, tmp_path: Path) -> None:
    made = import_checkpoint(project=cast.project, folder=gguf_file(tmp_path / "tiny.gguf"), name="Tiny")
    assert (made.details["format"], made.details["parameters"], made.details["tensor_types"]) == (
        "gguf",
        32,
        {"F32": 1},
    )
    assert made.details["gguf"]["name"] == "tiny"
    assert [entry.name for entry in read_manifest(made.uri)] == ["tiny.gguf"]


def test_a_gguf_file_that_was_cut_short_is_refused(cast: Cast, tmp_path: Path) -> None:
    path = gguf_file(tmp_path / "tiny.gguf")
    path.write_bytes(path.read_bytes()[:-64])
    with pytest.raises(ValidationError, match=r"tiny.gguf cannot be read as GGUF"):
        import_checkpoint(project=cast.project, folder=path, name="x")
    path.write_bytes(b"GGML" + path.read_bytes()[4:])
    with pytest.raises(ValidationError, match="does not start as a GGUF file does"):
        import_checkpoint(project=cast.project, folder=path, name="x")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("../config.json", "bad_name"), ("/etc/passwd.json", "bad_name"), ("a/b.json", "bad_name"), ("a\\b.json", "bad_name"),
        ("C:x.json", "bad_name"), (".json", "bad_name"), ("x\0.json", "bad_name"), ("", "bad_name"),
        ("a" * 220 + ".json", "bad_name"),
        ("manifest.json", "bad_name"), ("run.py", "bad_kind"), ("model.onnx", "bad_kind"), ("model.PT", "pickle"),
        ("optimizer.pkl", "pickle"), ("CONFIG.json", "twice"),
    ],
)  # fmt: skip
def test_names_that_are_not_taken(name: str, code: str) -> None:
    with pytest.raises(ValidationError) as refused:
        check_names(["config.json", "model.safetensors", name])
    assert refused.value.code == code
