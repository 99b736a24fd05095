"""What the trainer drew: at an iteration, over time, with everything that is no number still in sight."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.webapp.making import claimed, make_run, send
from trainer.contract import drawn
from trainer.contract import events as ev
from webapp.projects.models import Project
from webapp.runpage.drawn import between, common_edges, figure_spec
from webapp.runs.models import Run


def at(iteration: int) -> ev.Axes:
    return ev.Axes(iteration=iteration, sampled_tokens=100 * iteration)


@pytest.fixture
def client(client_of: Callable[[str], Client]) -> Client:
    return client_of("member")


@pytest.fixture
def run(project: Project) -> Run:
    run = make_run(project)
    events: list[ev.Event] = []
    for i in (0, 10, 30):
        events.append(drawn.histogram(at(i), "rollouts/length", [1.0] * i + [3.0], bins=2, span=(0.0, 4.0)))
        events.append(drawn.text(at(i), "note", f"text of {i}"))
    send(claimed(run), events)
    return run


def figure(client: Client, run: Run, **query: Any) -> Any:
    return client.get(reverse("runpage:figure", args=run.url_args), query).json()


@pytest.mark.parametrize(("asked", "shown"), [("", 30), ("30", 30), ("29", 10), ("10", 10), ("3", 0), ("junk", 30)])
def test_the_newest_up_to_the_chosen_iteration_is_shown(client: Client, run: Run, asked: str, shown: int) -> None:
    assert figure(client, run, kind="text", key="note", at=asked)["text"] == f"text of {shown}"


def test_before_the_first_one_the_page_says_when_it_comes(client: Client, run: Run) -> None:
    send_more = drawn.text(at(20), "late", "x")
    send(_held(run), [send_more])
    found = figure(client, run, kind="text", key="late", at="10")
    assert found["empty"] == "Nothing up to iteration 10; the first is of iteration 20."


def test_a_histogram_over_time_has_a_column_of_shares_for_each_iteration(client: Client, run: Run) -> None:
    found = figure(client, run, kind="histogram", key="rollouts/length", over="1")
    assert found["x"]["edges"] == [-5, 5, 20, 40]
    assert found["y"]["edges"] == [0.0, 2.0, 4.0]
    assert found["z"] == [[0.0, 10 / 11, 30 / 31], [1.0, 1 / 11, 1 / 31]]
    tokens = figure(client, run, kind="histogram", key="rollouts/length", over="1", x="sampled_tokens")
    assert tokens["x"]["edges"] == [-500, 500, 2000, 4000]
    assert tokens["x"]["axis"] == "sampled_tokens"


def test_marks_and_phases_lie_over_a_histogram_over_time(run: Run) -> None:
    send(_held(run), [ev.Mark(mark="alert", iteration=20, message="low")])
    spec = figure_spec(run, "histogram", "rollouts/length", over="sampled_tokens")
    assert spec is not None
    assert spec["marks"] == [{"x": 2000.0, "kind": "alert", "text": "alert", "note": "iteration 20: low"}]


def test_histograms_on_other_bins_are_spread_over_common_ones() -> None:
    assert common_edges([[0, 1, 2], [0, 1, 2]]) == [0, 1, 2]
    edges = common_edges([[0.0, 4.0], [2.0, 8.0]])
    assert (edges[0], edges[1], edges[-1], len(edges)) == (0.0, 0.2, 8.0, 41)
    assert between([7.0]) == [6.5, 7.5]


def test_cells_and_points_that_are_no_numbers_are_named(client: Client, project: Project) -> None:
    run = make_run(project)
    send(
        claimed(run),
        [
            drawn.table(at(1), "t", columns=["a", "b"], rows=[[math.nan, "x"], [1.0, -math.inf]]),
            drawn.heatmap(at(1), "h", x=["a", "b"], y=["r"], z=[[math.inf, 2.0]]),
            drawn.scatter(at(1), "s", [(1.0, math.nan), (2.0, 3.0), (-math.inf, 4.0)], labels=["p", "q", "r"]),
            drawn.histogram(at(1), "g", [1.0, math.nan, math.inf]),
        ],
    )
    assert figure(client, run, kind="table", key="t")["rows"] == [["NaN", "x"], [1.0, "−∞"]]
    heat = figure(client, run, kind="heatmap", key="h")
    assert (heat["z"], heat["nonfinite"]) == ([[None, 2.0]], [[0, 0, "inf"]])
    points = figure(client, run, kind="scatter", key="s")
    assert (points["series"][0]["x"], points["series"][0]["notes"]) == ([2.0], ["q"])
    assert points["off"] == [[1.0, None, "y NaN", "p"], [None, 4.0, "x −∞", "r"]]
    assert "not on the axis: 1 NaN, 1 ∞" in figure(client, run, kind="histogram", key="g")["note"]


def test_what_was_cut_says_so_beside_the_title(client: Client, project: Project) -> None:
    run = make_run(project)
    send(claimed(run), [ev.Text(axes=at(1), key="t", text="x" * 300_000)])
    found = figure(client, run, kind="text", key="t")
    assert found["note"] == "iteration 1 · the first 200000 of 300000 characters"


def test_the_page_has_one_slider_and_its_choice_is_in_every_address(client: Client, run: Run) -> None:
    text = client.get(reverse("runpage:overview", args=run.url_args), {"at": "12", "over": "1"}).content.decode()
    assert 'max="2" step="1" value="1" data-iterations="0 10 30"' in text
    assert "kind=histogram&amp;key=rollouts%2Flength&amp;at=12&amp;x=iteration&amp;over=1" in text
    assert "kind=text&amp;key=note&amp;at=12" in text


def _held(run: Run) -> Any:
    from webapp.runs.models import Attempt
    from webapp.runs.services import Claim

    attempt = Attempt.objects.get(run=run)
    return Claim(attempt.pk, run.pk, attempt.number, attempt.claim)
