"""Figures through the API, against literal numbers."""

from __future__ import annotations

import pytest

from tests.conftest import Cast
from tests.webapp.api.calling import Caller, error
from tests.webapp.making import claimed, evaluation, make_run, scalars, send
from trainer.contract import drawn
from trainer.contract import events as ev

COUNTS = [(4, 1), (4, 2), (4, 0), (4, 4)]


def test_pass_at_k_of_an_evaluation(cast: Cast) -> None:
    # pass@2 of (4, 1): 1 − C(3,2)/C(4,2) = 1/2; of (4, 2): 5/6; of (4, 0): 0; of (4, 4): 1. Chance .1: 1 − .9^k.
    run = make_run(cast.project)
    row = evaluation(run, 0, COUNTS, chance=0.1)
    found = Caller(cast["viewer"]).get(f"runs/{run.pk}/evaluations/{row.pk}").json()
    curve = found["curve"]
    assert curve["ks"] == [1, 2, 4]
    assert [one["value"] for one in curve["estimates"]] == pytest.approx([0.4375, 0.583333333, 0.75])
    assert curve["chance"] == pytest.approx([0.1, 0.19, 0.3439])
    # Four problems are too few for an interval: undefined, and said.
    assert {(one["lo"], one["hi"], one["note"]) for one in curve["estimates"]} == {(None, None, "too few problems")}
    assert sorted((one["n"], one["c"]) for one in found["results"]) == [(4, 0), (4, 1), (4, 2), (4, 4)]


def test_pass_at_k_over_iterations(cast: Cast) -> None:
    run = make_run(cast.project)
    evaluation(run, 0, COUNTS, chance=0.1)
    evaluation(run, 5, [(4, 2), (4, 2), (4, 0), (4, 4)], chance=0.1)
    found = Caller(cast["viewer"]).get(f"runs/{run.pk}/passk").json()
    assert (found["iterations"], found["ks"][0]) == ([0, 5], 1)
    assert [one["value"] for one in found["series"][0]] == pytest.approx([0.4375, 0.5])
    at_4 = found["series"][found["ks"].index(4)]
    assert [one["value"] for one in at_4] == pytest.approx([0.75, 0.75])


def test_what_a_run_drew_is_listed_by_iteration(cast: Cast) -> None:
    run = make_run(cast.project)
    events: list[ev.Event] = []
    for at in (1, 2, 3):
        axes = ev.Axes(iteration=at)
        events += [drawn.text(axes, "note", f"text of {at}"), drawn.histogram(axes, "reward", [0.0, 1.0], bins=2)]
    send(claimed(run), events)
    caller, at = Caller(cast["viewer"]), f"runs/{run.pk}/figures"
    rows = caller.get(at).json()["results"]
    assert [(row["iteration"], row["kind"], row["key"]) for row in rows[:2]] == [
        (1, "text", "note"), (1, "histogram", "reward"),
    ]  # fmt: skip
    assert len(rows) == 6
    assert rows[1]["document"]["counts"] == [1, 1]
    found = caller.get(f"{at}?kind=text&key=note&iteration=2").json()["results"]
    assert [row["document"]["text"] for row in found] == ["text of 2"]
    first = caller.get(f"{at}?limit=4").json()
    assert len(caller.get(f"{at}?cursor={first['next_cursor']}").json()["results"]) == 2
    assert error(caller.get(f"{at}?kind=log")) == (400, "invalid")


def test_one_metric_of_several_runs(cast: Cast) -> None:
    a, b, silent = (make_run(cast.project) for _ in range(3))
    for run, value in ((a, 0.5), (b, 0.25)):
        send(claimed(run), [scalars(1, reward=value), scalars(2, reward=2 * value)])
    theirs = make_run(cast.other_project)
    asked = "&".join(f"run={run.pk}" for run in (b, a, silent, theirs))
    found = Caller(cast["viewer"]).get(f"compare/metric?key=reward&axis=sampled_tokens&{asked}").json()["runs"]
    assert [(one["run"], [(s["x"], s["y"]) for s in one["series"]]) for one in found] == [
        (b.pk, [([100.0, 200.0], [0.25, 0.5])]),
        (a.pk, [([100.0, 200.0], [0.5, 1.0])]),
        (silent.pk, []),
    ]
