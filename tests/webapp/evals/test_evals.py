"""Counts in, curves and verdicts out: literal numbers, and the rules of the protocol."""

from __future__ import annotations

import pytest

from tests.conftest import Cast
from tests.webapp.making import claimed, evaluation, evaluation_event, make_run, send
from trainer.contract import events as ev
from webapp.evals import curves, selectors
from webapp.evals.models import Evaluation, EvaluationSet
from webapp.evals.verdicts import verdict_between, verdict_of
from webapp.projects.models import Project
from webapp.runs.models import Run
from webapp.runs.selectors import log_tail


@pytest.fixture
def run(project: Project) -> Run:
    return make_run(project)


def test_a_curve_holds_unbiased_values_on_powers_of_two(run: Run) -> None:
    # pass@2 of (4, 1): 1 − C(3,2)/C(4,2) = 1/2; of (4, 2): 1 − 1/6; of (4, 0): 0; of (4, 4): 1.
    found = curves.curve(evaluation(run, 0, [(4, 1), (4, 2), (4, 0), (4, 4)], chance=0.1))
    assert found.ks == [1, 2, 4]
    assert [e.value for e in found.estimates] == pytest.approx([7 / 16, (1 / 2 + 5 / 6 + 0 + 1) / 4, 3 / 4])
    assert found.chance == pytest.approx([0.1, 0.19, 0.3439])
    assert all(e.lo is None and e.note == "too few problems" for e in found.estimates)


def test_a_k_beyond_n_is_left_out(run: Run) -> None:
    assert curves.pass_at(evaluation(run, 0, [(4, 1), (8, 2)]), 8) is None


def test_a_task_without_chance_has_no_chance_line(run: Run) -> None:
    assert curves.curve(evaluation(run, 0, [(4, 1)], chance=None)).chance is None


def test_a_curve_is_computed_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    row = evaluation(run, 0, [(4, 1)] * 31)
    first = curves.curve(row)
    monkeypatch.setattr(curves, "interval", None)
    assert curves.curve(Evaluation.objects.get(pk=row.pk)) == first


def test_problems_are_paired_by_uid_and_not_by_position(run: Run) -> None:
    a = evaluation(run, 0, [(4, 0), (4, 4)])
    b = evaluation(run, 1, [(4, 0), (4, 4)])
    for column in b.counts.values():
        column.reverse()
    assert curves.paired_pairs(a, b) == ([(4, 0), (4, 4)], [(4, 0), (4, 4)])
    change = curves.difference(b, a, 1)
    assert change is not None
    assert change.value == 0.0


def test_effective_numbers_use_problems_solved_at_both_ends(run: Run) -> None:
    counts = [(8, 4), (8, 4), (8, 1)]
    start = evaluation(run, 0, counts, forms=[[1, 1, 1, 1], [2, 2], [1]])
    now = evaluation(run, 1, [(8, 4), (8, 2), (8, 8)], forms=[[4], [1, 1], [8]])
    found = curves.effective(now, start)
    assert found is not None
    # Collision masses at the start 0 and 1/3, now 1 and 0: effective numbers 1/(1/6) and 1/(1/2).
    assert (found.start.value, found.now.value, found.problems) == (pytest.approx(6.0), pytest.approx(2.0), 2)
    assert found.rise.value == pytest.approx(1 / 2 - 1 / 6)


def test_no_shared_solved_problem_gives_no_effective_number(run: Run) -> None:
    assert curves.effective(evaluation(run, 1, [(4, 1)]), evaluation(run, 0, [(4, 4)])) is None


def spread(c: int, total: int = 120) -> list[tuple[int, int]]:
    """Problems around c of 16, so that intervals have a width."""
    return [(16, min(16, max(0, c + i % 3 - 1))) for i in range(total)]


def half_lost(total: int = 120) -> list[tuple[int, int]]:
    """Half of the problems are solved always and half never: pass@1 = .5, pass@16 = .5."""
    return [(16, 16 if i % 2 else 0) for i in range(total)]


def test_squeezing_needs_pass1_up_and_passk_down(run: Run) -> None:
    start, now = evaluation(run, 0, spread(3), chance=0.01), evaluation(run, 1, half_lost(), chance=0.01)
    found = verdict_between(now, start)
    assert found.kind == "squeezing"
    assert found.first is not None
    assert found.last is not None
    assert (found.first.direction, found.last.direction, found.last.k) == ("rose", "fell", 16)
    assert found.sentence.startswith("Squeezing: pass@1 rose .19 → .50 [")
    assert "pass@16 fell 1.00 → .50 [" in found.sentence
    assert found.sentence.endswith("(chance .15 at k = 16; one seed, 120 problems).")


def test_both_up_is_not_squeezing(run: Run) -> None:
    start = evaluation(run, 0, [(16, i % 2) for i in range(120)])
    assert verdict_between(evaluation(run, 1, spread(6)), start).kind == "not squeezing"


def test_the_same_counts_again_are_silent(run: Run) -> None:
    found = verdict_between(evaluation(run, 1, spread(3)), evaluation(run, 0, spread(3)))
    assert found.kind == "not resolved"
    assert "not resolved" in found.sentence


def test_few_problems_never_give_an_alarm(run: Run) -> None:
    start, now = evaluation(run, 0, spread(3, 20)), evaluation(run, 1, half_lost(20))
    found = verdict_between(now, start)
    assert found.kind == "not resolved"
    assert "too few problems" in found.sentence


def test_fewer_ways_on_the_solved_problems_is_squeezing_too(run: Run) -> None:
    counts = [(16, 8)] * 120
    wide = [[1] * 8 if i % 2 else [2] * 4 for i in range(120)]
    narrow = [[8] if i % 3 else [4, 4] for i in range(120)]
    start, now = evaluation(run, 0, counts, forms=wide), evaluation(run, 1, counts, forms=narrow)
    found = verdict_between(now, start)
    assert found.kind == "squeezing"
    assert "effective correct trajectories fell" in found.sentence
    assert "on 120 problems solved at both" in found.sentence


def test_a_run_without_a_second_evaluation_has_no_verdict_yet(run: Run) -> None:
    evaluation(run, 0, [(4, 1)])
    assert verdict_of(run).kind == "pending"


def test_the_verdict_prefers_the_final_set_when_its_base_was_measured_elsewhere(project: Project) -> None:
    run, base = make_run(project), make_run(project, name="evaluation of the base")
    evaluation(run, 0, spread(3), weights="base")
    evaluation(run, 5, spread(3), weights="tuned")
    evaluation(run, 5, half_lost(), name="test", weights="tuned")
    assert verdict_of(run).name == "validation"
    evaluation(base, 0, spread(3), name="test", weights="base")
    found = verdict_of(run)
    assert (found.name, found.kind) == ("test", "squeezing")


def test_progress_keeps_to_one_set(run: Run) -> None:
    evaluation(run, 0, [(4, 1)])
    evaluation(run, 5, [(4, 1), (4, 3)])
    evaluation(run, 10, [(4, 2), (4, 3)])
    found = selectors.progress_json(run)
    assert found is not None
    assert (found["iterations"], found["ks"]) == ([5, 10], [1, 4])
    assert [e["value"] for e in found["series"][0]] == [0.5, 0.625]


def test_the_set_travels_once_and_an_unknown_one_is_told(project: Project) -> None:
    run = make_run(project)
    held = claimed(run)
    first = evaluation_event(0, [(4, 1)])
    later = first.model_copy(update={"axes": ev.Axes(iteration=1), "set": None})
    stranger = later.model_copy(update={"axes": ev.Axes(iteration=2), "set_id": "unheard-of"})
    send(held, [first, later, stranger])
    assert EvaluationSet.objects.count() == 1
    assert [e.iteration for e in selectors.evaluations_of(run)] == [0, 1]
    assert "'unheard-of', whose problems were not sent" in log_tail(run)[0]["message"]


def test_sets_are_kept_apart_by_project(cast: Cast) -> None:
    evaluation(make_run(cast.project), 0, [(4, 1)])
    evaluation(make_run(cast.other_project), 0, [(4, 1)])
    assert EvaluationSet.objects.count() == 2


def test_problem_rows_stand_beside_the_start(run: Run) -> None:
    start, now = evaluation(run, 0, [(4, 1), (4, 0)]), evaluation(run, 1, [(4, 0), (4, 3)])
    rows = selectors.problem_rows(now, start)
    assert [(r["uid"], r["text"], r["start_c"], r["c"]) for r in rows] == [
        ("p0", "problem 0", 1, 0),
        ("p1", "problem 1", 0, 3),
    ]


def test_crossings_need_shared_problems(run: Run) -> None:
    start, now = evaluation(run, 0, spread(3)), evaluation(run, 1, half_lost())
    found = curves.crossing_of(now, start)
    assert found is not None
    assert found.resolved
    assert found.a_above_before
    assert found.k is not None
    assert 2 < found.k < 8


def test_a_project_can_be_deleted_with_all_it_measured(run: Run) -> None:
    evaluation(run, 0, [(4, 1)])
    run.project.delete()
    assert EvaluationSet.objects.count() == 0
