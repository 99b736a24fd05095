"""The data of the charts: specs as `static/js/charts.js` describes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.webapp.making import claimed, evaluation, make_run, scalars, send
from trainer.contract import events as ev
from webapp.methods.selectors import chart_by_slug
from webapp.metrics.axes import Scale
from webapp.projects.models import Project
from webapp.runpage.axes import drawn_bands, drawn_marks
from webapp.runpage.layout import sections_of
from webapp.runs.models import Run
from webapp.runs.services import finish
from webapp.runs.states import RunState


@pytest.fixture
def client(client_of: Callable[[str], Client]) -> Client:
    return client_of("viewer")


@pytest.fixture
def run(project: Project) -> Run:
    return make_run(project, methods=["sps"])


def spec(client: Client, run: Run, slug: str, **query: Any) -> dict[str, Any]:
    response = client.get(reverse("runpage:chart", args=(*run.url_args, slug)), query)
    assert response.status_code == 200
    return response.json()


def phase(iteration: int, name: str) -> ev.Phase:
    return ev.Phase(axes=ev.Axes(iteration=iteration), name=name, title={"irl": "Inverse RL", "rl": "RL"}[name])


def test_reward_and_accuracy_are_in_one_chart(client: Client, run: Run) -> None:
    send(claimed(run), [scalars(1, reward=0.5, **{"eval/accuracy": 0.25}), scalars(2, reward=0.75)])
    found = spec(client, run, "reward")
    assert [(s["name"], s["x"], s["y"]) for s in found["series"]] == [
        ("Reward", [1, 2], [0.5, 0.75]),
        ("Validation accuracy", [1], [0.25]),
    ]
    assert found["y"]["rate"] is True


def test_nan_and_infinities_are_flags_and_never_numbers(client: Client, run: Run) -> None:
    send(claimed(run), [scalars(1, loss=1.0), scalars(2, loss=math.nan), scalars(3, loss=-math.inf)])
    [series] = spec(client, run, "loss")["series"]
    assert series["y"] == [1.0, None, None]
    assert series["nonfinite"] == [[1, "nan"], [2, "-inf"]]


def test_the_axis_of_the_address_is_used_and_an_unknown_one_is_the_iteration(client: Client, run: Run) -> None:
    send(claimed(run), [scalars(1, loss=1.0), scalars(2, loss=2.0)])
    assert spec(client, run, "loss", x="sampled_tokens")["series"][0]["x"] == [100, 200]
    assert spec(client, run, "loss", x="; DROP TABLE")["x"]["axis"] == "iteration"


def test_long_series_are_reduced_to_what_was_asked_for(client: Client, run: Run) -> None:
    send(claimed(run), [scalars(i, loss=float(i == 700)) for i in range(1500)])
    [series] = spec(client, run, "loss", max_points=100)["series"]
    assert len(series["x"]) <= 100
    assert max(series["y"]) == 1.0
    assert (series["total"], series["reduced"]) == (1500, True)


def test_csv_has_all_points_and_words_for_what_is_no_number(client: Client, run: Run) -> None:
    send(claimed(run), [scalars(1, loss=1.5), scalars(2, loss=math.inf)])
    url = spec(client, run, "loss", x="sampled_tokens")["csv"]
    text = client.get(url).content.decode()
    assert text.splitlines() == ["iteration,sampled_tokens,loss", "1,100,1.5", "2,200,inf"]


def test_csv_without_a_choice_has_every_metric_and_refuses_an_unknown_one(client: Client, run: Run) -> None:
    send(claimed(run), [scalars(1, loss=1.5, reward=0.5)])
    url = reverse("runpage:metrics-csv", args=run.url_args)
    assert client.get(url).content.decode().splitlines() == ["iteration,loss,reward", "1,1.5,0.5"]
    unknown = client.get(url, {"key": "lss"})
    assert unknown.status_code == 404
    assert "The run has no metric 'lss'." in unknown.content.decode()


def test_rl_phases_are_unshaded_and_others_shaded(run: Run) -> None:
    held = claimed(run)
    send(held, [phase(1, "rl"), *(scalars(i, loss=1.0) for i in (1, 2)), phase(3, "irl"), scalars(3, loss=1.0)])
    send(held, [phase(4, "rl"), scalars(4, loss=1.0), phase(5, "irl"), scalars(5, loss=1.0)])
    assert drawn_bands(run, Scale(run.pk, "iteration")) == [
        {"begin": 2.5, "end": 3.5, "title": "Inverse RL"},
        {"begin": 4.5, "end": None, "title": "Inverse RL"},
    ]
    # On another axis an iteration's work lies between the place before it and its own.
    assert drawn_bands(run, Scale(run.pk, "sampled_tokens"))[0] == {"begin": 200.0, "end": 300.0, "title": "Inverse RL"}


def test_a_run_with_one_phase_has_no_bands(run: Run) -> None:
    send(claimed(run), [phase(1, "irl"), scalars(1, loss=1.0)])
    assert drawn_bands(run, Scale(run.pk, "iteration")) == []


def test_marks_are_lines_with_words(run: Run) -> None:
    send(claimed(run), [scalars(1, loss=1.0), ev.Mark(mark="alert", iteration=1, message="loss")])
    assert drawn_marks(run, Scale(run.pk, "iteration")) == [
        {"x": 1.0, "kind": "alert", "text": "alert", "note": "iteration 1: loss"}
    ]


def test_pass_at_k_over_iterations_has_intervals_and_chance(client: Client, run: Run) -> None:
    for iteration in (0, 5):
        evaluation(run, iteration, [(16, 4)] * 60 + [(16, 12)] * 60, weights=f"w{iteration}", chance=0.1)
    found = spec(client, run, "passk-progress")
    assert [s["name"] for s in found["series"]] == ["pass@1", "pass@4", "pass@16", "chance@16"]
    first = found["series"][0]
    assert first["x"] == [0, 5]
    assert first["y"] == pytest.approx([0.5, 0.5])
    assert first["lo"][0] < 0.5 < first["hi"][0]
    assert first["notes"] == ["120 problems", "120 problems"]
    assert found["series"][3]["slot"] == "chance"
    assert found["series"][3]["y"][0] == pytest.approx(1 - 0.9**16)


def test_few_problems_are_hatched_and_too_few_have_no_interval(client: Client, run: Run) -> None:
    evaluation(run, 0, [(4, 1)] * 20 + [(4, 3)] * 20)
    assert spec(client, run, "passk-progress")["series"][0]["hatched"] is True
    few = make_run(run.project)
    evaluation(few, 0, [(4, 1), (4, 3)])
    series = spec(client, few, "passk-progress")["series"][0]
    assert series["lo"] == [None]
    assert series["notes"] == ["2 problems, no interval: too few problems"]


def test_the_curve_over_k_has_the_start_dashed_and_chance_dotted(client: Client, run: Run) -> None:
    evaluation(run, 0, [(8, 2)] * 40)
    assert [s["slot"] for s in spec(client, run, "passk-curve")["series"]] == [0, "chance"]
    evaluation(run, 3, [(8, 4)] * 40, weights="later")
    found = spec(client, run, "passk-curve")
    assert found["kind"] == "passk"
    assert [(s["name"], s["slot"], s["x"]) for s in found["series"]] == [
        ("start", "base", [1, 2, 4, 8]),
        ("iteration 3", 0, [1, 2, 4, 8]),
        ("chance", "chance", [1, 2, 4, 8]),
    ]


def test_effective_numbers_say_on_how_many_problems(client: Client, run: Run) -> None:
    evaluation(run, 0, [(8, 4)] * 40, forms=[[2, 1, 1]] * 40)
    evaluation(run, 3, [(8, 4)] * 40, forms=[[4]] * 40, weights="later")
    found = spec(client, run, "effective")
    assert found["note"] == "40 problems solved at both"
    start, now = found["series"]
    # Σp² of (2, 1, 1) without bias: 2·1/(4·3) = 1/6; of (4): 1.
    assert start["y"] == pytest.approx([6.0])
    assert now["y"] == pytest.approx([1.0])


def test_charts_without_data_say_what_they_wait_for(client: Client, run: Run) -> None:
    assert spec(client, run, "passk-progress")["empty"] == "No evaluation yet."
    assert "two correct samples" in spec(client, run, "effective")["empty"]
    assert spec(client, run, "reward")["series"] == []


def test_a_chart_that_does_not_exist_is_not_found(client: Client, run: Run) -> None:
    assert client.get(reverse("runpage:chart", args=(*run.url_args, "nothing"))).status_code == 404


def test_the_overview_follows_the_fixed_order_and_ends_with_the_methods_own_signals(run: Run) -> None:
    sections = sections_of(run, ["reward", "entropy", "kl", "grad_norm", "sps/irl_kl", "a/b", "step_time"])
    assert [frame.slug for frame in sections[0].frames] == [
        "reward", "passk-progress", "passk-curve", "entropy", "effective", "lengths", "truncation", "kl", "grad_norm",
        "clip",
    ]  # fmt: skip
    assert [section.name for section in sections] == ["overview", "method", "system", "other"]
    assert [frame.slug for frame in sections[1].frames] == ["sps_demos", "sps_loss", "sps_gate", "sps_norm"]
    assert [frame.path for frame in sections[3].frames] == ["metric?key=a%2Fb&"]


def test_a_run_that_is_over_shows_no_chart_that_stays_empty(run: Run) -> None:
    held = claimed(run)
    send(held, [scalars(1, reward=0.5)])
    finish(held, to=RunState.FINISHED, exit_code=0, reason="", worker="w")
    run.refresh_from_db()
    slugs = {frame.slug for section in sections_of(run, ["reward"]) for frame in section.frames}
    assert "reward" in slugs
    assert not {"kl", "clip", "sps_loss"} & slugs


def test_a_method_brings_its_charts_as_data(run: Run) -> None:
    chart = chart_by_slug(["sps"], "sps_loss")
    assert chart is not None
    assert chart.series == ("sps/irl_kl",)
    assert chart_by_slug([], "sps_loss") is None
    assert chart_by_slug(["no-such-method"], "reward") is not None


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            ev.Histogram(axes=ev.Axes(iteration=1), key="h", edges=[0, 1, 3], counts=[4, 2]),
            {"kind": "bars", "x": [0.5, 2.0], "y": [4, 2]},
        ),
        (
            ev.Scatter(axes=ev.Axes(iteration=1), key="h", x=[1, 2], y=[3, 4], labels=["a", "b"]),
            {"kind": "scatter", "x": [1, 2], "y": [3, 4]},
        ),
    ],
)
def test_figures_of_a_trainer_become_specs(client: Client, run: Run, event: Any, expected: dict[str, Any]) -> None:
    send(claimed(run), [event])
    query = {"kind": event.kind, "key": "h"}
    found = client.get(reverse("runpage:figure", args=run.url_args), query).json()
    [series] = found["series"]
    assert {"kind": found["kind"], "x": series["x"], "y": series["y"]} == expected


def test_a_heat_map_keeps_its_gaps(client: Client, run: Run) -> None:
    heat = ev.Heatmap(axes=ev.Axes(iteration=1), key="h", x=["a", "b"], y=["r"], z=[[1.0, None]])
    send(claimed(run), [heat])
    found = client.get(reverse("runpage:figure", args=run.url_args), {"kind": "heatmap", "key": "h"}).json()
    assert found["z"] == [[1.0, None]]
    assert (found["zmin"], found["zmax"]) == (1.0, 1.0)


def test_a_run_that_ended_before_its_first_evaluation_has_no_charts_of_evaluations(run: Run) -> None:
    assert [frame.slug for frame in sections_of(run, [], evaluated=False)[0].frames][1] == "passk-progress"
    finish(claimed(run), to=RunState.FAILED, exit_code=2, reason="No base.", worker="w")
    run.refresh_from_db()
    assert sections_of(run, [], evaluated=False) == []


def test_the_first_evaluation_is_not_compared_with_the_same_weights_of_another_run(client: Client, run: Run) -> None:
    other = make_run(run.project)
    evaluation(other, 0, [(8, 2)] * 40)
    evaluation(run, 0, [(8, 2)] * 40)
    assert [s["key"] for s in spec(client, run, "passk-curve")["series"]] == ["now", "chance"]
