"""Orphans in a folder and in a bucket: found, explained, removed only when they are old and still nobody's."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from tests.conftest import Cast
from tests.webapp.datasets.making import bare_version, make_upload
from tests.webapp.making import make_run
from webapp.checkpoints import uploading
from webapp.checkpoints.models import Checkpoint
from webapp.files.orphans import find, find_in, remove_orphans
from webapp.runs.models import Run
from webapp.runs.storage import files_root, path_of, stat, walk, write

AT_ONCE = timedelta(0)


@pytest.fixture(params=["folder", "bucket"])
def storage(request: pytest.FixtureRequest, settings: Any, tmp_path: Path) -> str:
    if request.param == "bucket":
        request.getfixturevalue("bucket")
    else:
        settings.FILES_DIR = tmp_path / "files"
    return str(request.param)


def run_over(cast: Cast, state: str = "stopped") -> Run:
    run = make_run(cast.project)
    Run.objects.filter(pk=run.pk).update(state=state)
    return run


def checkpoint(run: Run, iteration: int, *, row: bool = True, manifest: bool = True, **fields: Any) -> str:
    uri = f"runs/{run.pk}/attempts/1/checkpoints/it-{iteration:08d}"
    write(f"{uri}/policies/policy/model.safetensors", b"x" * iteration)
    if manifest:
        write(f"{uri}/manifest.json", b"{}")
    if row:
        Checkpoint.objects.create(
            project=run.project, run=run, attempt=1, iteration=iteration, name=f"c{iteration}", uri=uri,
            policy_uri=f"{uri}/policies/policy", weights_hash="h", created_at=timezone.now(), **fields,
        )  # fmt: skip
    return uri


def why(uri: str) -> str:
    return next((verdict.why for verdict in find().orphans if verdict.unit.uri == uri), "owned")


def test_what_rows_name_is_no_orphan(cast: Cast, storage: str) -> None:
    run = run_over(cast)
    write(f"runs/{run.pk}/attempts/1/events.jsonl", b"{}")
    write(f"runs/{run.pk}/config.json", b"{}")
    checkpoint(run, 10)
    checkpoint(run, 20, stored_at=None, manifest=False)
    checkpoint(run, 30, retired=True)
    bare_version(cast.project)
    make_upload(cast.project)
    upload = uploading.start(
        project=cast.project, user=cast["member"], name="m",
        files={"m.gguf": {"size": 4, "sha256": "0" * 64}},
    )  # fmt: skip
    uploading.append(upload=upload, name="m.gguf", offset=0, data=[b"GG"])
    assert (find().orphans, find().missing) == ([], [])
    assert find_in(cast.project).orphans == []


def test_every_kind_is_found_and_explained(cast: Cast, storage: str) -> None:
    run, project = run_over(cast), cast.project.pk
    cut, loose = checkpoint(run, 10, row=False, manifest=False), checkpoint(run, 20, row=False)
    removed = checkpoint(run, 30, removed_at=timezone.now())
    for uri in (
        f"runs/{run.pk}/attempts/7/events.jsonl", "runs/nosuchrun1/attempts/1/log.txt", "runs/nosuchrun1/config.json",
        f"checkpoints/{project}/gone/config.json", f"datasets/{project}/feed/rows.parquet",
        f"uploads/{project}/0123456789abcdef", "odd/file.txt", "note.txt",
    ):  # fmt: skip
        write(uri, b"1234")
    found = {verdict.unit.uri: (verdict.unit.files, verdict.removable) for verdict in find().orphans}
    assert found == {
        cut: (1, True), loose: (2, True), removed: (2, True), f"runs/{run.pk}/attempts/7": (1, True),
        "runs/nosuchrun1": (2, True), f"checkpoints/{project}/gone": (1, True), f"datasets/{project}/feed": (1, True),
        f"uploads/{project}/0123456789abcdef": (1, True), "odd": (1, False), "note.txt": (1, False),
    }  # fmt: skip
    assert "has no manifest" in why(cut)
    assert "no row names it" in why(loose)
    assert "the files were removed" in why(removed)
    assert "no attempt of this number" in why(f"runs/{run.pk}/attempts/7")
    assert "No run has this identifier" in why("runs/nosuchrun1")
    assert "No version of a dataset" in why(f"datasets/{project}/feed")
    assert "No upload or import waits" in why(f"uploads/{project}/0123456789abcdef")
    assert {verdict.unit.uri for verdict in find_in(cast.project).orphans} == {
        cut, loose, removed, f"checkpoints/{project}/gone", f"datasets/{project}/feed",
        f"uploads/{project}/0123456789abcdef",
    }  # fmt: skip


def test_only_what_is_old_and_nobodys_goes(cast: Cast, storage: str) -> None:
    run = run_over(cast)
    loose, owned = checkpoint(run, 10, row=False), checkpoint(run, 20)
    write("note.txt", b"1")
    gone, kept = remove_orphans([loose])
    assert (gone, kept) == ([], {loose: "it changed less than 24 h ago"})
    wanted = [loose, owned, f"runs/{run.pk}", "note.txt", "runs/nowhere"]
    gone, kept = remove_orphans(wanted, older_than=AT_ONCE)
    assert [unit.uri for unit in gone] == [loose]
    assert set(kept) == {owned, f"runs/{run.pk}", "note.txt", "runs/nowhere"}
    assert list(walk(loose)) == []
    assert len(list(walk(owned))) == 2
    assert stat("note.txt").size == 1


@pytest.mark.parametrize("state", ["queued", "starting", "running", "stopping"])
def test_runs_that_may_be_at_work_are_left_alone(cast: Cast, settings: Any, tmp_path: Path, state: str) -> None:
    settings.FILES_DIR = tmp_path
    run = run_over(cast, state)
    loose = checkpoint(run, 10, row=False, manifest=False)
    (path_of(loose) / ".draft.1.x").write_bytes(b"1")
    assert find().orphans == []
    assert remove_orphans([loose, f"{loose}/.draft.1.x"], older_than=AT_ONCE)[0] == []
    assert (path_of(loose) / ".draft.1.x").exists()


def test_an_orphan_that_has_got_a_row_meanwhile_stays(cast: Cast, storage: str) -> None:
    run = run_over(cast)
    loose = checkpoint(run, 10, row=False)
    assert [verdict.unit.uri for verdict in find().orphans] == [loose]
    checkpoint(run, 10)
    assert remove_orphans([loose], older_than=AT_ONCE) == ([], {loose: "it is gone, or has an owner by now"})


def test_drafts_of_processes_that_died_are_found_on_this_host(cast: Cast, storage: str) -> None:
    path = files_root() / "checkpoints/1/.draft.ab12.model.safetensors"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half")
    uri = "checkpoints/1/.draft.ab12.model.safetensors"
    assert "when its process ended" in why(uri)
    assert [unit.size for unit in remove_orphans([uri], older_than=AT_ONCE)[0]] == [4]
    assert not path.exists()


def test_rows_without_files_are_named(cast: Cast, storage: str) -> None:
    run = run_over(cast)
    lost, torn = checkpoint(run, 10), checkpoint(run, 20, manifest=False)
    checkpoint(run, 30)
    version = bare_version(cast.project)
    from webapp.runs.storage import remove, remove_tree

    remove_tree(lost)
    remove(version.uri)
    for found in (find(), find_in(cast.project)):
        assert {missing.uri: missing.why.split(",")[0].split(";")[0] for missing in found.missing} == {
            lost: "None of its files are in the storage.",
            torn: "Its manifest is not in the storage",
            version.uri: "Its file is not in the storage",
        }


def make_old(uri: str, hours: float) -> None:
    then = time.time() - 3600 * hours
    for path in path_of(uri).rglob("*"):
        os.utime(path, (then, then))


def test_the_command_asks_and_keeps_the_grace_time(
    cast: Cast, settings: Any, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    settings.FILES_DIR = tmp_path
    run = run_over(cast)
    old, young = checkpoint(run, 10, row=False), checkpoint(run, 20, row=False)
    make_old(old, 30)
    call_command("files", "--check")
    assert "2 orphans (34\xa0bytes), 0 rows without files." in capsys.readouterr().out
    monkeypatch.setattr("builtins.input", lambda _question: "no")
    with pytest.raises(CommandError, match="nothing was removed"):
        call_command("files", "--remove")
    assert path_of(old).exists()
    call_command("files", "--remove", "--older-than", "31h", "--yes")
    assert path_of(old).exists()
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or "yes")
    call_command("files", "--remove")
    assert asked == ["Remove 1 of them (12\xa0bytes) for good? Type yes: "]
    assert (path_of(old).exists(), path_of(young).exists()) == (False, True)
    with pytest.raises(CommandError, match="'soon' is no age; expected for instance 90m, 24h or 7d"):
        call_command("files", "--remove", "--older-than", "soon")


def test_the_command_fails_for_missing_and_damaged_files(
    cast: Cast, settings: Any, tmp_path: Path, capsys: Any
) -> None:
    settings.FILES_DIR = tmp_path
    checkpoint(run_over(cast), 10)
    row = Checkpoint.objects.get()
    with pytest.raises(CommandError, match=r"c10 is damaged: .*manifest.json cannot be read"):
        call_command("files", "--verify", str(row.pk))
    (path_of(row.uri) / "manifest.json").unlink()
    with pytest.raises(CommandError, match="1 row has no files"):
        call_command("files", "--check")
    assert f"missing  {row.uri}  c10" in capsys.readouterr().out


def test_the_page_removes_what_is_chosen_and_confirmed(cast: Cast, client: Any, settings: Any, tmp_path: Path) -> None:
    settings.FILES_DIR = tmp_path
    run = run_over(cast)
    old, young = checkpoint(run, 10, row=False), checkpoint(run, 20, row=False)
    make_old(old, 30)
    client.force_login(cast["admin"])
    address = f"/p/{'/'.join(cast.project.url_args)}/checkpoints/orphans"
    page = client.get(address).content.decode()
    assert f'value="{old}">' in page
    assert f'value="{young}" disabled' in page
    client.post(address, {"uri": [old]})
    assert path_of(old).exists()
    client.post(address, {"uri": [old, young, "runs"], "sure": "1"})
    assert (path_of(old).exists(), path_of(young).exists()) == (False, True)
