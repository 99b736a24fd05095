"""From a file to a version that runs use: upload, mapping with preview, import that bears faults, report, removal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from tests.conftest import Cast
from tests.webapp.datasets.making import SUMS, as_file, make_upload, make_version
from trainer.contract.config import InvalidConfig
from webapp.datasets import selectors, services
from webapp.datasets.models import Dataset, DatasetUse, Import, Version
from webapp.datasets.selectors import Rows, rows_of, versions_for
from webapp.datasets.tool import inspect
from webapp.launch import imports
from webapp.launch.queue import Watch
from webapp.launch.services import launch_run
from webapp.projects.models import Project
from webapp.runs import storage
from webapp.runs.models import Run

Clients = Callable[[str], Client]
SMALL = {"hidden_size": 16, "layers": 1, "heads": 2, "kv_heads": 2, "intermediate_size": 32, "max_positions": 32}


def url(project: Project, name: str, *more: Any) -> str:
    return reverse(f"datasets:{name}", args=(*project.url_args, *more))


def posted(form: Any, **changes: Any) -> dict[str, Any]:
    """What a browser sends of a mapping form."""
    data = {name: form[name].value() for name in form.fields}
    return {key: value for key, value in {**data, **changes}.items() if value not in (None, False)}


def document(version: Version, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "sft", "policy": {"architecture": SMALL},
        "task": {"name": "dataset", "params": {"content_hash": version.content_hash}, "problems": 50},
        "evaluation": {"problems": 5, "final_problems": 5}, "sampling": {"max_new_tokens": 8}, **changes,
    }  # fmt: skip


def test_a_file_becomes_a_version_through_the_pages(cast: Cast, client_of: Clients) -> None:
    client, project = client_of("member"), cast.project
    answer = client.post(url(project, "new"), {"name": "Sums", "file": as_file(SUMS)})
    job = Import.objects.get()
    assert answer.headers["Location"] == url(project, "mapping", job.pk)
    page = client.get(answer.headers["Location"])
    assert "Recognised as <strong>GSM8K</strong>" in page.content.decode()
    assert len(page.context["seen"]["rows"]) == 20
    form = posted(page.context["form"])
    shown = client.post(url(project, "preview", job.pk), {**form, "suffix": " Think."})
    assert "0+0= Think." in shown.content.decode()
    wrong = client.post(url(project, "preview", job.pk), {**form, "prompt": "nowhere"})
    assert "the prompt column &#x27;nowhere&#x27; is missing or empty" in wrong.content.decode()
    started = client.post(url(project, "mapping", job.pk), form)
    assert started.headers["Location"] == url(project, "import", job.pk)
    assert "Waits for the scheduler" in client.get(url(project, "import", job.pk)).content.decode()
    assert imports.run_waiting() == 1
    version = Version.objects.get()
    done = client.get(url(project, "import", job.pk), {"part": 1})
    assert done.headers["HX-Redirect"] == url(project, "version", version.pk)
    assert (version.rows, version.number, str(version)) == (144, 1, "Sums v1")
    assert (
        "Gold answers that fail against themselves" in client.get(url(project, "version", version.pk)).content.decode()
    )
    # The upload is gone, the version's file is there.
    job.refresh_from_db()
    with pytest.raises(FileNotFoundError):
        storage.stat(job.uri)
    file = b"".join(client.get(url(project, "download", version.pk)).streaming_content)  # type: ignore[attr-defined]
    assert len(file) == version.size_bytes


def test_shares_that_do_not_add_up_stand_at_their_field(cast: Cast, client_of: Clients) -> None:
    client, job = client_of("member"), make_upload(cast.project)
    form = posted(client.get(url(cast.project, "mapping", job.pk)).context["form"], train="0.5")
    page = client.post(url(cast.project, "mapping", job.pk), form)
    assert page.context["form"].errors["train"] == ["The shares add up to 0.7, expected 1."]
    job.refresh_from_db()
    assert job.state == "mapping"


def test_the_same_content_again_is_the_same_version(project: Project) -> None:
    first = make_version(project)
    again = make_version(project)
    assert again == first
    assert Import.objects.latest("pk").message == "The content is that of version 1; nothing was copied."
    elsewhere = make_version(project, name="Others")
    assert (elsewhere.uri, elsewhere.sha256, elsewhere.number) == (first.uri, first.sha256, 1)
    assert elsewhere.report["overlaps"][0]["name"] == "Sums v1"
    assert make_version(project, SUMS[:-1]).number == 2


def test_one_row_is_one_row(cast: Cast, client_of: Clients) -> None:
    version = make_version(cast.project, SUMS[:1])
    client = client_of("owner")
    report = client.get(version.get_absolute_url()).content.decode()
    assert "1 row from sums.jsonl" in report
    assert "1 row: " in report
    job = version.imports.get()
    assert "1 row read" in client.get(job.get_absolute_url(), follow=True).content.decode()


def test_broken_rows_refuse_the_import_until_they_may_be_skipped(cast: Cast, client_of: Clients) -> None:
    client, project = client_of("member"), cast.project
    job = make_upload(project, [*SUMS[:30], {"question": "no answer needed"}, {"other": 1}])
    form = posted(client.get(url(project, "mapping", job.pk)).context["form"])
    client.post(url(project, "mapping", job.pk), form)
    imports.run_waiting()
    job.refresh_from_db()
    assert job.state == "failed"
    assert job.message.startswith("sums.jsonl, line 32: the prompt column 'question' is missing or empty")
    page = client.get(url(project, "import", job.pk)).content.decode()
    assert "sums.jsonl:32" in page
    assert "Change the mapping" in page
    again = client.post(url(project, "again", job.pk), {"remap": "1"})
    assert again.headers["Location"] == url(project, "mapping", job.pk)
    client.post(url(project, "mapping", job.pk), {**form, "skip_broken": "on"})
    imports.run_waiting()
    assert Version.objects.get().report["broken"]["count"] == 1


def test_rows_with_half_characters_and_nul_are_shown_and_imported(cast: Cast, client_of: Clients) -> None:
    client, project = client_of("member"), cast.project
    job = make_upload(project, [{"question": "half \ud800", "answer": "1"}, {"question": "nul \0", "answer": "2"}])
    page = client.get(url(project, "mapping", job.pk))
    assert "half \ufffd" in page.content.decode()
    client.post(url(project, "mapping", job.pk), {**posted(page.context["form"]), "skip_broken": "on"})
    assert imports.run_waiting() == 1
    version = Version.objects.get()
    assert (version.rows, version.report["broken"]["count"]) == (1, 1)
    for name in ("version", "rows"):
        assert client.get(url(project, name, version.pk)).status_code == 200


def test_an_import_is_taken_once_and_a_lost_one_writes_nothing(project: Project) -> None:
    job = services.start_import(job=make_upload(project), mapping={"prompt": "question"})
    held = services.claim_next()
    assert held is not None
    assert services.claim_next() is None
    assert services.start_import(job=job, mapping={"prompt": "other"}).mapping == {"prompt": "question"}
    watch = Watch(patience=2)
    services.beat(job=held, rows=1, share=0.1)
    left = storage.files_root() / "imports" / f"{held.pk}-{held.claim}"
    left.mkdir(parents=True)
    assert [(imports.reap(watch), left.exists()) for _ in range(3)] == [(0, True), (0, True), (1, False)]
    job.refresh_from_db()
    assert (job.state, "went away" in job.message) == ("failed", True)
    with pytest.raises(services.ImportLost):
        services.beat(job=held, rows=2, share=0.2)
    # Tried again, it is whole.
    services.start_import(job=job, mapping=job.mapping or {})
    assert imports.run_waiting() == 1
    job.refresh_from_db()
    assert job.state == "finished"


def test_a_file_that_kills_its_reader_is_a_failure_with_a_reason(project: Project, settings: Any) -> None:
    settings.TRAINER_COMMAND = ["/bin/sh", "-c", "kill -9 $$"]
    job = services.start_import(job=make_upload(project), mapping={"prompt": "question"})
    imports.run_waiting()
    job.refresh_from_db()
    assert job.message.startswith("The process that read sums.jsonl died.")


def test_names_of_files_are_only_names(project: Project) -> None:
    dataset = services.create_dataset(project=project, name="Odd", user=None)
    for name in ("--help.jsonl", "a b.jsonl", "../../etc/x.jsonl"):
        job = services.add_upload(dataset=dataset, file=as_file(SUMS[:3], name), user=None)
        assert job.uri.startswith(f"uploads/{project.pk}/")
        assert inspect(storage.fetch(job.uri), job.filename)["title"] == "GSM8K"


def test_a_project_goes_with_its_versions_and_their_runs(cast: Cast) -> None:
    launch_run(cast.project, cast["member"], document(make_version(cast.project)))
    cast.project.delete()
    assert not Version.objects.exists()


def test_rows_are_browsed_searched_and_found_by_line(cast: Cast, client_of: Clients) -> None:
    version = make_version(cast.project)
    assert [row["line"] for row in rows_of(version, page=2).rows] == list(range(26, 51))
    [found] = rows_of(version, search="7+9=").rows
    assert (found["answer"], found["line"]) == ("16", 7 * 12 + 10)
    assert [row["line"] for row in rows_of(version, search="+11=", page=9).rows] == list(range(12, 145, 12))
    assert rows_of(version, search="no such text") == Rows([], 1, 1, 0)
    assert rows_of(version, line=13).rows[0]["prompt"][0]["content"] == "1+0="
    assert rows_of(version, split="test").total == version.report["splits"]["test"]
    page = client_of("viewer").get(url(cast.project, "rows", version.pk), {"q": "7+9="}).content.decode()
    assert "7+9=" in page
    assert client_of("viewer").get(url(cast.project, "rows", version.pk), {"line": "999"}).status_code == 200


def test_a_search_looks_everywhere_and_says_where_it_had_to_stop(
    cast: Cast, client_of: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"question": f"number {n}", "answer": f"#### {n}"} for n in range(25_000)]
    version = make_version(cast.project, rows)
    [found] = rows_of(version, search="NUMBER 24999").rows
    assert found["line"] == 25_000
    held = rows_of(version, search="number", split="test")
    assert (held.total, held.searched) == (version.report["splits"]["test"], None)
    assert {row["split"] for row in held.rows} == {"test"}
    monkeypatch.setattr(selectors, "SEARCH_SECONDS", 0)
    stopped = rows_of(version, search="number 24999")
    assert (stopped.total, stopped.searched) == (0, 10_000)
    page = client_of("viewer").get(url(cast.project, "rows", version.pk), {"q": "number 24999"}).content.decode()
    assert "0 found in the first 10\u202f000 of 25\u202f000 rows: the search took too long" in page


def test_too_large_an_upload_is_refused_before_it_is_read(cast: Cast, client_of: Clients, settings: Any) -> None:
    settings.UPLOAD_LIMIT_BYTES = 1
    body = {"name": "Large", "file": as_file([{"prompt": "x" * 2_000_000}])}
    answer = client_of("member").post(url(cast.project, "new"), body)
    assert answer.status_code == 413
    assert "UNSQUEEZE_UPLOAD_GB" in answer.content.decode()
    assert not Dataset.objects.exists()


def test_an_upload_needs_its_token(cast: Cast) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast["member"])
    assert client.post(url(cast.project, "new"), {"name": "Sums", "file": as_file(SUMS)}).status_code == 403
    assert not Dataset.objects.exists()


def test_an_empty_file_or_a_taken_name_leaves_nothing_behind(cast: Cast, client_of: Clients) -> None:
    client = client_of("member")
    assert client.post(url(cast.project, "new"), {"name": "Sums", "file": as_file([])}).status_code == 422
    assert not Dataset.objects.exists()
    make_upload(cast.project)
    page = client.post(url(cast.project, "new"), {"name": "Sums", "file": as_file(SUMS)})
    assert "has a dataset with this name already" in page.content.decode()


def test_a_used_version_stays_and_an_unused_one_goes_with_its_file(cast: Cast, client_of: Clients) -> None:
    client, project = client_of("member"), cast.project
    used, free = make_version(project), make_version(project, SUMS[:60])
    launch_run(project, cast["member"], document(used))
    with pytest.raises(ValidationError, match="Sums v1 is used by runs"):
        services.remove_version(version=used)
    client.post(url(project, "delete", used.dataset_id))
    assert Version.objects.count() == 2
    client.post(url(project, "delete-version", free.pk))
    assert list(Version.objects.all()) == [used]
    with pytest.raises(FileNotFoundError):
        storage.stat(free.uri)
    client.post(url(project, "archive", used.dataset_id))
    assert not versions_for(project)
    assert "Sums" in client.get(url(project, "index"), {"archived": "1"}).content.decode()


def test_a_run_records_its_version_and_both_pages_link(cast: Cast, client_of: Clients) -> None:
    version = make_version(cast.project)
    run = launch_run(cast.project, cast["member"], document(version))
    params = run.config["task"]["params"]
    assert (params["uri"], params["sha256"]) == (version.uri, version.sha256)
    assert DatasetUse.objects.get().version == version
    assert (run.task, run.name) == ("Sums v1", "sft · Sums v1 · seed 0")
    client = client_of("viewer")
    page = client.get(reverse("runpage:config", args=run.url_args)).content.decode()
    assert version.get_absolute_url() in page
    assert run.get_absolute_url() in client.get(version.get_absolute_url()).content.decode()


def refusals(cast: Cast, wanted: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidConfig) as caught:
        launch_run(cast.project, cast["member"], wanted)
    assert not Run.objects.exists()
    return {problem.path: problem.message for problem in caught.value.problems}


def test_what_a_version_cannot_serve_is_refused_before_launch(cast: Cast) -> None:
    version = make_version(cast.project)
    held_out = version.report["problems_by_split"]["validation"]
    few = refusals(cast, document(version, evaluation={"problems": 144, "final_problems": 5}))
    assert few == {"evaluation.problems": f"found 144, but Sums v1 has {held_out} validation problems; lower it"}
    strange = make_version(cast.project, [*SUMS, {"question": "3×4=", "answer": "#### 12"}], name="Signs")
    assert "does not know '×' (line 145)" in refusals(cast, document(strange))["task.params.content_hash"]
    foreign = document(version)
    foreign["task"]["params"]["content_hash"] = "0" * 64
    assert "no dataset version of this project" in refusals(cast, foreign)["task.params.content_hash"]


def test_another_projects_version_is_not_found(cast: Cast) -> None:
    version = make_version(cast.other_project)
    assert "no dataset version of this project" in refusals(cast, document(version))["task.params.content_hash"]


def test_the_launch_form_offers_versions_and_fills_in_what_they_have(cast: Cast, client_of: Clients) -> None:
    version = make_version(cast.project)
    client = client_of("member")
    page = client.get(reverse("launch:new", args=cast.project.url_args), {"dataset": version.pk})
    form = page.context["form"]
    assert "Sums v1" in page.content.decode()
    assert form.find("evaluation.problems").typed == str(version.report["problems_by_split"]["validation"])
    assert form.config is not None, form.problems
    assert form.config["task"]["params"]["content_hash"] == version.content_hash
    run = launch_run(cast.project, cast["member"], document(version))
    copy = client.get(reverse("launch:new", args=cast.project.url_args), {"from": run.pk}).context["form"]
    assert copy.version == version
    assert copy.config == run.config


def test_the_command_imports_and_says_what_is_wrong(project: Project, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in SUMS) + "{broken\n")
    name = "/".join(project.url_args)
    with pytest.raises(CommandError, match=r"sums.jsonl, line 145: no JSON"):
        call_command("import_dataset", name, path)
    assert not Dataset.objects.exists()
    call_command("import_dataset", name, path, skip_broken=True)
    assert "sums v1: 144 rows" in capsys.readouterr().out
