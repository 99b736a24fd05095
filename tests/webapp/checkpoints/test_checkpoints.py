"""Reported and imported checkpoints, and what started from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from tests.conftest import Cast
from tests.webapp.making import claimed, make_run, send
from tests.webapp.models import model_folder, weights
from trainer.contract import events as ev
from webapp.checkpoints import selectors
from webapp.checkpoints.importing import import_checkpoint
from webapp.checkpoints.services import record_input
from webapp.runs.storage import path_of


@pytest.fixture
def folder(settings: Any, tmp_path: Path) -> Path:
    settings.FILES_DIR = tmp_path / "files"
    found = model_folder(tmp_path / "model")
    (found / "card.json").write_text(json.dumps({"weights_hash": "abc", "seed": 3}))
    return found


def saved(iteration: int, *, final: bool = False) -> ev.Checkpoint:
    uri = f"attempts/1/checkpoints/it-{iteration:08d}"
    axes = ev.Axes(iteration=iteration)
    return ev.Checkpoint(axes=axes, uri=uri, weights_hash=f"h{iteration}", size_bytes=10, final=final)


def test_an_import_copies_once_and_takes_the_card_over(cast: Cast, folder: Path) -> None:
    first = import_checkpoint(project=cast.project, folder=folder, name="Base")
    again = import_checkpoint(project=cast.project, folder=folder, name="Base")
    assert first == again
    assert (first.weights_hash, first.details["seed"], first.size_bytes) == ("abc", 3, 23 + 76 + 34)
    assert (path_of(first.policy_uri) / "model.safetensors").read_bytes() == weights()
    assert list(selectors.bases_for(cast.project)) == [first]
    assert list(selectors.bases_for(cast.other_project)) == []


def test_other_weights_are_another_checkpoint(cast: Cast, folder: Path) -> None:
    first = import_checkpoint(project=cast.project, folder=folder, name="Base")
    (folder / "model.safetensors").write_bytes(weights(b"others!!"))
    assert import_checkpoint(project=cast.project, folder=folder, name="Base").uri != first.uri


def test_a_folder_without_weights_is_refused(cast: Cast, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"expected config\.json and \.safetensors"):
        import_checkpoint(project=cast.project, folder=tmp_path, name="x")


def test_a_runs_checkpoints_are_offered_once_final_and_until_removed(cast: Cast) -> None:
    run = make_run(cast.project)
    held = claimed(run)
    send(
        held, [saved(1), saved(2), saved(3, final=True), ev.CheckpointRemoved(uri="attempts/1/checkpoints/it-00000001")]
    )
    assert [(c.iteration, c.available) for c in selectors.checkpoints_of(run)] == [(3, True), (2, True), (1, False)]
    assert [c.iteration for c in selectors.bases_for(cast.project)] == [3]
    final = selectors.bases_for(cast.project).get()
    assert final.policy_uri == f"runs/{run.pk}/attempts/1/checkpoints/it-00000003/policies/policy"


def test_lineage_goes_both_ways(cast: Cast, folder: Path) -> None:
    base = import_checkpoint(project=cast.project, folder=folder, name="Base")
    run = make_run(cast.project)
    record_input(run=run, uri=base.policy_uri)
    record_input(run=make_run(cast.project), uri="some/folder")
    assert selectors.base_of(run) == base
    assert list(selectors.runs_from(base)) == [run]
