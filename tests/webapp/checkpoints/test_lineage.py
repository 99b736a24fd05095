"""The drawing of lineage: dataset versions and bases → run → checkpoints → runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from tests.conftest import Cast
from tests.webapp.datasets.making import bare_version
from tests.webapp.making import claimed, evaluation_event, make_run, send
from webapp.checkpoints.importing import add_imported
from webapp.checkpoints.lineage import GENERATIONS, SHOWN, Lineage, Node, lineage_of_checkpoint, lineage_of_run
from webapp.checkpoints.models import Checkpoint, RunInput
from webapp.datasets.services import record_use
from webapp.projects.models import Project
from webapp.runs.models import Run

ClientOf = Callable[[str], Client]


def imported(project: Project, name: str = "Base", weights: str = "wb") -> Checkpoint:
    return add_imported(project=project, uri=f"checkpoints/{name}", name=name, weights_hash=weights, size=1, details={})


def saved(run: Run, iteration: int, **fields: Any) -> Checkpoint:
    uri = f"runs/{run.pk}/{iteration}"
    return Checkpoint.objects.create(
        project=run.project, run=run, attempt=1, iteration=iteration, name=f"{run.name} · {iteration}", uri=uri,
        policy_uri=uri, weights_hash=f"{run.pk}-{iteration}", created_at=timezone.now(), **fields,
    )  # fmt: skip


def started(project: Project, base: Checkpoint | None, name: str, kind: str = "rl") -> Run:
    run = make_run(project, name=name)
    Run.objects.filter(pk=run.pk).update(kind=kind)
    if base is not None:
        RunInput.objects.create(run=run, checkpoint=base)
    return Run.objects.get(pk=run.pk)


def names(drawing: Lineage) -> list[list[str]]:
    return [[node.name for node in step] for step in drawing.steps]


def after(node: Node) -> list[tuple[str, str]]:
    return [(one.name, one.note) for one in node.after]


def test_a_runs_drawing_leads_from_its_data_to_what_came_of_it(project: Project) -> None:
    base, version = imported(project), bare_version(project)
    run = started(project, base, "Trained")
    record_use(run=run, version=version)
    one, two = saved(run, 1), saved(run, 2, final=True)
    started(project, one, "Fork")
    started(project, two, "Judged", kind="evaluate")
    other = started(project, None, "Elsewhere")
    send(claimed(other), [evaluation_event(0, [(4, 1)], weights=two.weights_hash)])
    # Its own validation of these weights is no other run's.
    send(claimed(run), [evaluation_event(2, [(4, 1)], weights=two.weights_hash)])

    drawing = lineage_of_run(run)
    assert names(drawing) == [[str(version), "Base"], ["Trained"]]
    assert drawing.steps[0][1].note == "imported"
    (trained,) = drawing.steps[1]
    assert trained.here
    assert after(trained) == [("Trained · 2", "final"), ("Trained · 1", "")]
    assert after(trained.after[0]) == [("Elsewhere", "evaluates it"), ("Judged", "evaluates it")]
    assert after(trained.after[1]) == [("Fork", "starts from it")]


def test_a_checkpoints_drawing_leads_through_the_run_that_saved_it(project: Project) -> None:
    base = imported(project)
    first = started(project, base, "First", kind="sft")
    middle = saved(first, 5)
    second = started(project, middle, "Second")
    kept = saved(second, 7)
    saved(second, 8)
    drawing = lineage_of_checkpoint(kept)
    assert names(drawing) == [["Base"], ["First"], ["First · 5"], ["Second"]]
    assert drawing.steps[1][0].note == "fine-tuning"
    (end,) = drawing.steps[-1][0].after
    assert (end.name, end.here) == ("Second · 7", True)
    assert names(lineage_of_checkpoint(base)) == [["Base"]]
    assert after(lineage_of_checkpoint(base).steps[0][0]) == [("First", "starts from it")]


def test_a_long_history_begins_with_a_link_to_what_is_earlier(project: Project) -> None:
    at: Checkpoint | None = None
    for number in range(GENERATIONS + 2):
        at = saved(started(project, at, f"Run {number}"), 1)
    assert at is not None
    drawing = lineage_of_checkpoint(at)
    assert names(drawing) == [["Run 1 · 1"], ["Run 2"], ["Run 2 · 1"], ["Run 3"], ["Run 3 · 1"], ["Run 4"]]
    assert drawing.earlier is not None
    assert drawing.earlier.name == "Run 1 · 1"


def test_hundreds_are_folded_and_cost_no_more_queries(cast: Cast, client_of: ClientOf) -> None:
    project = cast.project
    run = started(project, None, "Busy")
    few = [saved(run, 1), saved(run, 2)]
    with CaptureQueriesContext(connection) as little:
        lineage_of_run(run)
    for iteration in range(3, 301):
        saved(run, iteration)
    forks = [started(project, few[0], f"Fork {number}") for number in range(150)]
    with CaptureQueriesContext(connection) as much:
        drawing = lineage_of_run(run)
    assert len(much) <= len(little) + 1  # the runs themselves, once there are any
    (busy,) = drawing.steps[0]
    assert busy.after[0].name == "Busy · 1"
    assert (len(busy.first), len(busy.folded)) == (SHOWN, 300 - SHOWN)
    page = client_of("viewer").get(reverse("runpage:config", args=run.url_args)).content.decode()
    assert f"{300 - SHOWN} more" in page
    assert f"{len(forks) - SHOWN} more" in page
    assert all(f'href="{one.get_absolute_url()}"' in page for one in (*few, *forks))


def test_both_pages_draw_it_and_every_box_opens(cast: Cast, client_of: ClientOf) -> None:
    base = imported(cast.project)
    run = started(cast.project, base, "Trained <b>")
    record_use(run=run, version=bare_version(cast.project))
    kept = saved(run, 1, removed_at=timezone.now())
    fork = started(cast.project, kept, "Fork")
    viewer = client_of("viewer")
    for address in (reverse("runpage:config", args=run.url_args), kept.get_absolute_url()):
        page = viewer.get(address).content.decode()
        drawing = page[page.index('<div class="lineage">') :]
        for one in (base, run, kept, fork, run.dataset_use.version):
            assert f'class="lineage-node" href="{one.get_absolute_url()}"' in drawing
            assert viewer.get(one.get_absolute_url()).status_code == 200
        assert "Trained &lt;b&gt;" in drawing
        assert "removed" in drawing
