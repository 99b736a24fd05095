"""The compare page: which curves stand beside which, and what may be said about them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client

from tests.webapp.making import claimed, evaluation, make_run, scalars, send
from webapp.compare.differences import crossing_rows, difference_rows, effective_rows
from webapp.compare.figures import passk_spec
from webapp.compare.query import Query
from webapp.compare.selectors import ONE_SEED, Comparison, compare, config_differences
from webapp.compare.tables import markdown
from webapp.launch.fields import MISSING
from webapp.projects.models import Project
from webapp.runs.models import Run

COMPARE = "/p/lab/countdown/compare/"
pytestmark = pytest.mark.django_db

# Of 100 problems, and 16 samples each.
BASE = [(16, 2)] * 60 + [(16, 0)] * 40
SHARP = [(16, 12)] * 40 + [(16, 0)] * 60
WIDE = [(16, 5)] * 75 + [(16, 0)] * 25


def config(seed: int = 0, **changes: Any) -> dict[str, Any]:
    return {"kind": "rl", "seed": seed, "policy": {"checkpoint": "b"}, "algorithm": {"preset": "grpo"}, **changes}


def a_run(
    project: Project, name: str, counts: list[tuple[int, int]], *, seed: int = 0, weights: str = "", **changes: Any
) -> Run:
    """A run with a start and a final test on problems of its own count."""
    run = make_run(project, name=name, config=config(seed, **changes), seed=seed)
    evaluation(run, 0, [(4, 1)] * 10, weights="w-base")
    evaluation(run, 60, counts, name="test", weights=weights or f"w-{name}")
    return run


def base_test(project: Project, counts: list[tuple[int, int]] = BASE) -> Run:
    run = make_run(project, name="base measured", config=config(kind="evaluate"))
    Run.objects.filter(pk=run.pk).update(kind="evaluate")
    evaluation(run, 0, counts, name="test", weights="w-base")
    return run


def comparison(project: Project, runs: list[Run], query: str = "") -> Comparison:
    return compare(project, Query.of(QueryDict(f"runs={','.join(run.pk for run in runs)}&{query}")))


# The address


def test_lists_may_come_joined_or_repeated() -> None:
    assert Query.of(QueryDict("runs=a,b&runs=c&runs=a")).runs == ("a", "b", "c")


def test_the_address_survives_a_round_trip() -> None:
    text = "runs=a,b&evaluation=test&at=start&by=run&ref=base&set=s&mix=1&x=sampled_tokens&metrics=eval/accuracy,kl"
    query = Query.of(QueryDict(text))
    assert query.encoded() == text
    assert Query.of(QueryDict(query.encoded())) == query


def test_unknown_values_fall_back() -> None:
    assert Query.of(QueryDict("at=middle&by=colour&x=moon&mix=yes")) == Query()


# Lines


def test_the_base_is_found_by_its_weights_on_the_same_set(project: Project) -> None:
    measured = base_test(project)
    run = a_run(project, "GRPO", SHARP)
    found = comparison(project, [run])
    assert [(line.name, line.slot, line.first.run_id) for line in found.bases] == [("base", "base", measured.pk)]
    assert found.bases[0].at(1).value == pytest.approx(0.6 * 2 / 16)
    assert found.reference is found.bases[0]


def test_a_selected_run_that_only_measures_the_base_is_the_base_line(project: Project) -> None:
    measured, run = base_test(project), a_run(project, "GRPO", SHARP)
    found = comparison(project, [measured, run])
    assert [line.name for line in found.all_lines] == ["base", "GRPO"]


def test_without_an_evaluation_of_the_base_the_page_offers_one(
    project: Project, client_of: Callable[[str], Client]
) -> None:
    run = a_run(project, "GRPO", SHARP)
    page = client_of("member").get(f"{COMPARE}?runs={run.pk}").content.decode()
    assert comparison(project, [run]).baseless == [run]
    assert f"launch/?from={run.pk}&amp;kind=evaluate" in page


def test_seeds_of_one_configuration_are_one_line_with_the_t_interval(project: Project) -> None:
    counts = [[(16, c)] * 100 for c in (2, 4, 6)]
    runs = [a_run(project, f"GRPO · seed {s}", counts[s], seed=s) for s in range(3)]
    (line,) = comparison(project, runs).lines
    assert (line.name, line.seeds) == ("GRPO, 3 seeds", 3)
    value = line.at(1)
    # Means 2/16, 4/16, 6/16: .25 ± 4.3027 · .125 / √3.
    assert value.value == pytest.approx(0.25)
    assert value.lo == pytest.approx(0.25 - 4.30265 * 0.125 / 3**0.5, abs=1e-5)
    assert [member.name for member in line.members] == ["GRPO · seed 0", "GRPO · seed 1", "GRPO · seed 2"]


def test_another_setting_is_another_line(project: Project) -> None:
    runs = [a_run(project, "a", SHARP, seed=0), a_run(project, "b", SHARP, seed=1, optimizer={"learning_rate": 1e-5})]
    assert [line.seeds for line in comparison(project, runs).lines] == [1, 1]


def test_one_seed_is_a_curve_and_never_better(project: Project, client_of: Callable[[str], Client]) -> None:
    base_test(project)
    runs = [a_run(project, "A", WIDE), a_run(project, "B", SHARP, optimizer={"learning_rate": 1e-5})]
    page = client_of("viewer").get(f"{COMPARE}?runs={runs[0].pk},{runs[1].pk}").content.decode()
    assert ONE_SEED in page
    assert "of these two sets of weights, not of the methods" in page
    assert "better" not in page.replace(ONE_SEED, "")


def test_samples_end_where_the_estimate_does(project: Project) -> None:
    (line,) = comparison(project, [a_run(project, "A", WIDE)]).lines
    assert line.ks == [1, 2, 4, 8, 16]
    assert line.at(64).value is None
    assert line.at(64).reason == "n = 16 samples a problem: pass@64 has no unbiased estimate"


def test_few_problems_are_marked_and_very_few_have_no_interval(project: Project) -> None:
    run = a_run(project, "A", WIDE[:50])
    spec = passk_spec(comparison(project, [run]))
    assert "hatched: few problems" not in passk_spec(comparison(project, [a_run(project, "all", WIDE)]))["note"]
    few = a_run(project, "B", [(16, 5)] * 20 + [(16, 9)] * 5)
    bare = passk_spec(comparison(project, [few]))["series"][0]
    assert bare["lo"] == [None] * 5
    assert bare["notes"][0] == "25 problems, too few problems"
    spread = a_run(project, "C", [(16, 5)] * 30 + [(16, 9)] * 25)
    spec = passk_spec(comparison(project, [spread]))
    assert spec["series"][0]["hatched"] is True
    assert "hatched: few problems" in spec["note"]


# Sets


def test_different_sets_are_not_put_on_one_axis_silently(project: Project, client_of: Callable[[str], Client]) -> None:
    runs = [a_run(project, "A", WIDE), a_run(project, "B", SHARP, x=1), a_run(project, "C", WIDE[:90], x=2)]
    found = comparison(project, runs)
    assert [line.name for line in found.lines] == ["A", "B"]
    assert [choice.drawn for choice in found.sets] == [True, False]
    assert found.sets[1].differs == ["90 problems, 90 of them shared"]
    page = client_of("viewer").get(f"{COMPARE}?runs={','.join(run.pk for run in runs)}").content.decode()
    assert "The runs were evaluated on 2 different sets." in page
    other = comparison(project, runs, f"set={found.sets[1].set.uid}")
    assert [line.name for line in other.lines] == ["C"]


def test_mixed_sets_are_drawn_with_the_warning(project: Project, client_of: Callable[[str], Client]) -> None:
    runs = [a_run(project, "A", WIDE), a_run(project, "C", WIDE[:90], x=2)]
    found = comparison(project, runs, "mix=1")
    assert [line.name for line in found.lines] == ["A", "C"]
    assert "different evaluation sets on one axis" in passk_spec(found)["note"]
    page = client_of("viewer").get(f"{COMPARE}?runs={','.join(run.pk for run in runs)}&mix=1").content.decode()
    assert "Curves over different evaluation sets are on one axis." in page


# Differences


def test_one_run_against_another_is_paired_by_problem(project: Project) -> None:
    a, b = a_run(project, "A", WIDE), a_run(project, "B", SHARP, x=1)
    found = comparison(project, [b, a])
    assert found.reference is not None
    assert found.reference.name == "B"
    (row,) = difference_rows(found, found.reference, ks=(1, 16))
    assert (row.line.name, row.seeds, row.problems) == ("A", 1, 100)
    first, last = row.cells
    assert first.value.value == pytest.approx(0.75 * 5 / 16 - 0.4 * 12 / 16)
    assert last.value.value == pytest.approx(0.75 - 0.4)
    assert last.value.lo is not None
    assert last.value.lo > 0
    assert last.verdict == "higher"
    assert first.value.hi is not None
    assert first.value.hi < 0
    assert first.verdict == "lower"


def test_seeds_are_paired_by_seed_with_the_t_interval(project: Project) -> None:
    a = [a_run(project, f"A · seed {s}", [(16, 4 + s)] * 100, seed=s) for s in range(3)]
    b = [a_run(project, f"B · seed {s}", [(16, 1 + 2 * s)] * 100, seed=s, x=1) for s in range(3)]
    found = comparison(project, [*b, *a])
    reference = found.lines[0]
    (row,) = difference_rows(found, reference, ks=(1,))
    # Differences 3/16, 2/16, 1/16: mean 1/8, standard deviation 1/16.
    assert row.seeds == 3
    assert row.cells[0].value.value == pytest.approx(0.125)
    assert row.cells[0].value.hi == pytest.approx(0.125 + 4.30265 / 16 / 3**0.5, abs=1e-5)
    assert row.cells[0].p == pytest.approx(0.07418, abs=1e-5)


def test_seeds_against_a_single_run_have_no_interval(project: Project) -> None:
    a = [a_run(project, f"A · seed {s}", [(16, 4 + s)] * 100, seed=s) for s in range(3)]
    b = a_run(project, "B", [(16, 1)] * 100, seed=1, x=1)
    found = comparison(project, [b, *a])
    (row,) = difference_rows(found, found.lines[0], ks=(1,))
    assert row.cells[0].value.value == pytest.approx(4 / 16)
    assert row.cells[0].value.lo is None
    assert row.cells[0].verdict == "not resolved"


def test_holm_counts_every_difference_shown(project: Project) -> None:
    runs = [
        a_run(project, name, counts, x=i) for i, (name, counts) in enumerate([("A", SHARP), ("B", WIDE), ("C", BASE)])
    ]
    found = comparison(project, runs)
    rows = difference_rows(found, found.lines[0], ks=(1, 16))
    raw = [cell.raw_p for row in rows for cell in row.cells]
    assert all(p is not None for p in raw)
    smallest = min(p for p in raw if p is not None)
    adjusted = [cell.p for row in rows for cell in row.cells]
    assert min(p for p in adjusted if p is not None) == pytest.approx(4 * smallest)


# Crossings and effective numbers


def test_a_crossing_is_an_interval_of_k(project: Project) -> None:
    base_test(project)
    found = comparison(project, [a_run(project, "GRPO", SHARP)])
    (row,) = crossing_rows(found, found.reference)
    assert row.resolved
    match = re.fullmatch(r"GRPO below base from k = ([\d.]+) \[([\d.]+), ([\d.]+)\]", row.sentence)
    assert match is not None
    k, lo, hi = map(float, match.groups())
    assert lo < k < hi
    # The base reaches .4 of the problems when its 2 of 16 are found on two of three problems: between k = 8 and 16.
    assert 4 < k < 16


def test_curves_apart_do_not_cross(project: Project) -> None:
    found = comparison(project, [a_run(project, "A", WIDE), a_run(project, "B", BASE, x=1)])
    (row,) = crossing_rows(found, found.reference)
    assert row.sentence == "B and A do not cross up to k = 16"


def test_effective_numbers_are_taken_against_the_start(project: Project) -> None:
    run = make_run(project, name="A", config=config())
    before = [[1, 1, 1, 1]] * 20 + [[2, 2]] * 20
    evaluation(run, 0, [(8, 4)] * 40, weights="w-base", forms=before)
    evaluation(run, 10, [(8, 4)] * 40, weights="w-10", forms=[[4]] * 40)
    found = comparison(project, [run], "evaluation=validation")
    (row,) = effective_rows(found)
    # Σp² of 2, 2 is 1/3 and of four different ones 0: the mean is 1/6. Afterwards all four are alike.
    assert row.start.value == pytest.approx(6.0)
    assert row.now.value == pytest.approx(1.0)
    assert (row.problems, row.verdict) == (40, "fell")


# Configurations, metrics, access


def test_configurations_show_only_what_differs(project: Project) -> None:
    sps = [{"slug": "sps", "params": {"alpha": 0.5}}]
    a = make_run(project, config=config(0, methods=[]), name="a")
    b = make_run(project, config=config(1, methods=sps), name="b")
    runs, rows = config_differences([a, b])
    assert (runs, rows) == ([a, b], [("methods", [None, "sps"]), ("seed", [0, 1])])
    c = make_run(project, config=config(2, methods=[{"slug": "sps", "params": {"alpha": 1}}], extra=1), name="c")
    assert config_differences([b, c], by="seeds")[1] == [("extra", [MISSING, 1]), ("methods.sps.alpha", [0.5, 1])]


def test_metrics_lie_on_the_asked_axis(project: Project, client_of: Callable[[str], Client]) -> None:
    run = make_run(project, config=config())
    send(claimed(run), [scalars(1, reward=0.5), scalars(2, reward=float("nan"))])
    url = f"{COMPARE}metric.json?runs={run.pk}&key=reward&x=sampled_tokens"
    spec = client_of("viewer").get(url).json()
    (series,) = spec["series"]
    assert (series["x"], series["y"], series["nonfinite"]) == ([100, 200], [0.5, None], [[1, "nan"]])
    assert spec["x"] == {"axis": "sampled_tokens", "title": "Sampled tokens", "unit": "tokens"}


def test_runs_of_other_projects_are_unknown(cast: Any, client_of: Callable[[str], Client]) -> None:
    theirs = a_run(cast.other_project, "their secret", WIDE)
    page = client_of("owner").get(f"{COMPARE}?runs={theirs.pk}").content.decode()
    assert "their secret" not in page
    assert client_of("owner").get(f"{COMPARE}passk.json?runs={theirs.pk}").json()["series"] == []


def test_runs_without_the_evaluation_are_named(project: Project, client_of: Callable[[str], Client]) -> None:
    run, bare = a_run(project, "A", WIDE), make_run(project, name="unmeasured", config=config(3))
    page = client_of("viewer").get(f"{COMPARE}?runs={run.pk},{bare.pk},zzz").content.decode()
    assert "No test evaluation yet" in page
    assert "1 of the runs in the address is not in this project." in page


def test_the_number_of_queries_does_not_grow_with_the_runs(
    project: Project, client_of: Callable[[str], Client], django_assert_max_num_queries: Any
) -> None:
    base_test(project)
    runs = [a_run(project, f"run {i}", WIDE, x=i) for i in range(8)]
    client = client_of("viewer")
    client.get(COMPARE)
    with django_assert_max_num_queries(16):
        client.get(f"{COMPARE}?runs={','.join(run.pk for run in runs)}")


def test_markdown_has_everything_that_reads_the_numbers(project: Project) -> None:
    base_test(project)
    found = comparison(project, [a_run(project, "A | b", WIDE)])
    assert found.reference is not None
    text = markdown(found, difference_rows(found, found.reference), found.reference)
    head, rule, base, line, chance = text.splitlines()[:5]
    assert head == "| Run | Seeds | pass@1 | pass@4 | pass@16 | Problems | Samples | T |"
    assert rule.count("---") == 8
    assert base.startswith("| base | 1 | 0.0750 [")
    assert line.startswith("| A \\| b | 1 | 0.234 [")
    assert line.endswith("| 100 | 16 | 1.0 |")
    assert chance.startswith("| chance |  | 0.0100 |")
    assert "p adjusted by Holm over all differences shown" in text
