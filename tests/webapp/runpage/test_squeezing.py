"""The squeezing tab: any two evaluations, their null, and one problem over time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.webapp.making import evaluation, make_run
from webapp.projects.models import Project
from webapp.runpage.one_problem import MOST_COLUMNS, Moment, answer_mass, history_of, solution_ranks
from webapp.runs.models import Run


@pytest.fixture
def client(client_of: Callable[[str], Client]) -> Client:
    return client_of("member")


def page(client: Client, run: Run, **query: str) -> str:
    response = client.get(reverse("runpage:squeezing", args=run.url_args), query)
    assert response.status_code == 200
    return response.content.decode()


def drawn(text: str, name: str) -> dict[str, Any]:
    found = re.search(rf'<script id="{name}" type="application/json">(.*?)</script>', text)
    assert found
    spec: dict[str, Any] = json.loads(found[1])
    return spec


def three(project: Project) -> Run:
    run = make_run(project)
    evaluation(run, 0, [(16, 14), (16, 0), (16, 1)])
    evaluation(run, 5, [(16, 15), (16, 2), (16, 1)], weights="between")
    evaluation(run, 9, [(16, 1), (16, 0), (16, 0)], weights="later")
    return run


def test_gains_and_losses_have_their_null_beside_them(client: Client, project: Project) -> None:
    text = page(client, three(project))
    assert "solved at iteration 0, not at 9; an unchanged policy loses" in text
    assert "lost, 14/16 → 1/16" in text


def test_any_two_evaluations_are_compared(client: Client, project: Project) -> None:
    text = page(client, three(project), **{"from": "5", "to": "9"})
    assert "lost, 15/16 → 1/16" in text
    assert "solved at iteration 5, not at 9" in text
    assert (
        '<select class="input" name="from" data-submits><option>0</option><option selected>5</option><option>9</option>'
        in text
    )


@pytest.mark.parametrize("query", [{"from": "77"}, {"from": "x", "to": "-1"}, {"name": "nothing"}, {"problem": "<b>"}])
def test_what_there_is_not_is_left_out(query: dict[str, str], client: Client, project: Project) -> None:
    assert "lost, 14/16 → 1/16" in page(client, three(project), **query)


def test_one_evaluation_twice_is_no_comparison(client: Client, project: Project) -> None:
    text = page(client, three(project), **{"from": "5", "to": "5"})
    assert "Both ends are the evaluation at iteration 5. Choose two different ones." in text
    assert "<select" in text


def test_a_test_set_is_chosen_by_its_name(client: Client, project: Project) -> None:
    run = three(project)
    assert "<option>test</option>" not in page(client, run)
    evaluation(run, 0, [(8, 4)] * 40, name="test")
    evaluation(run, 9, [(8, 6)] * 40, name="test", weights="later")
    assert "<option selected>test</option>" in page(client, run)  # where there is a final one, it is what counts
    assert "lost, 14/16 → 1/16" in page(client, run, name="validation")


def test_the_bound_is_that_of_equally_hard_problems(client: Client, project: Project) -> None:
    curve = drawn(page(client, three(project), to="5"), "curve")
    bound = next(one for one in curve["series"] if one["key"] == "bound")
    first = (15 + 2 + 1) / 48
    assert bound["y"] == pytest.approx([1 - (1 - first) ** k for k in (1, 2, 4, 8, 16)])


def moment(iteration: int, answers: list[list[Any]], forms: list[int]) -> Moment:
    return Moment(iteration, sum(count for _, count, _ in answers), answers, forms)


def test_answers_are_stacked_to_all_samples() -> None:
    history = [
        moment(0, [["24", 2, True], ["23", 1, False], ["__none__", 1, False]], [1, 1]),
        moment(8, [["24", 4, True]], [4]),
    ]
    spec = answer_mass(history, "1 2 3 4")
    assert [(one["name"], one["y"]) for one in spec["series"]] == [
        ("✓ 24", [0.5, 1.0]),
        ("23", [0.25, 0.0]),
        ("no answer", [0.25, 0.0]),
    ]
    assert spec["x"]["ticks"] == [[0, "0"], [1, "8"]]
    assert spec["note"] == "1 2 3 4 · 4 samples each"


def test_answers_beyond_the_most_frequent_are_one_remainder() -> None:
    answers = [[str(i), 10 - i, False] for i in range(9)] + [["__other__", 3, False]]
    spec = answer_mass([moment(0, answers, [])], "")
    assert [one["name"] for one in spec["series"]] == ["0", "1", "2", "3", "4", "5", "others"]
    assert sum(one["y"][0] for one in spec["series"]) == pytest.approx(1)
    assert spec["series"][-1]["y"] == [pytest.approx((4 + 3 + 2 + 3) / 57)]


def test_an_answer_that_was_right_and_wrong_counts_once() -> None:
    spec = answer_mass([moment(0, [["24", 1, True], ["24", 3, False]], [1])], "")
    assert [(one["name"], one["y"]) for one in spec["series"]] == [("✓ 24", [1.0])]


def test_right_solutions_are_ranked_as_shares_of_all_samples() -> None:
    history = [moment(0, [["24", 3, True], ["1", 1, False]], [1, 2]), moment(4, [["1", 4, False]], [])]
    history.append(moment(8, [["24", 4, True]], [4]))
    spec = solution_ranks(history, "")
    assert [(one["name"], one["x"], one["y"]) for one in spec["series"]] == [
        ("start", [1, 2], [0.5, 0.25]),
        ("iteration 8", [1], [1.0]),
    ]
    assert spec["series"][0]["notes"][0] == "3 right samples of 4, 2 solutions"


def test_a_problem_that_was_never_solved_says_so() -> None:
    spec = solution_ranks([moment(0, [["1", 4, False]], [])], "")
    assert (spec["series"], spec["empty"]) == ([], "No right sample of this problem in any evaluation.")


def test_a_long_run_is_thinned_and_keeps_both_ends(project: Project) -> None:
    run = make_run(project)
    evaluations = [evaluation(run, i, [(4, 1)], weights=str(i)) for i in range(60)]
    history = history_of("p0", evaluations)
    assert len(history) == MOST_COLUMNS
    assert (history[0].iteration, history[-1].iteration) == (0, 59)
    assert history_of("unknown", evaluations) == []
