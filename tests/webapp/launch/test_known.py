"""Which evaluations a run is given: those of its own base in its own project, whole and with their fingerprint."""

from __future__ import annotations

from typing import Any

from tests.webapp.making import evaluation_event, make_run
from trainer.contract import events as ev
from webapp.evals.models import Evaluation
from webapp.evals.services import store_evaluation
from webapp.launch.known import known_evaluations
from webapp.projects.models import Project
from webapp.projects.services import create_project
from webapp.runs.models import Run

CONFIG = {
    "kind": "rl",
    "seed": 0,
    "policy": {"checkpoint": "base"},
    "evaluation": {"seed": 0, "samples": 4, "final_samples": 8},
}


def measured(run: Run, iteration: int = 0, **fields: Any) -> ev.Evaluation:
    """A stored evaluation of the run, as a trainer sends one."""
    event = evaluation_event(iteration, [(4, 1), (4, 3)], **{"seed": 0, "engine": "e 1", "tokens": 40, **fields})
    event = event.model_copy(update={"fingerprint": ev.fingerprint_of(event), "mean_length": event.mean_length})
    store_evaluation(run=run, attempt=1, event=event.model_dump(mode="json"), time=run.created_at, seq=1)
    return event


def run_of(project: Project, **config: Any) -> Run:
    return make_run(project, config={**CONFIG, **config}, task="parity")


def test_the_base_of_another_run_is_handed_on_bit_for_bit(project: Project) -> None:
    first, second = run_of(project), run_of(project)
    event = measured(first, mean_length=1 / 3, token_entropy=0.1 + 0.2)
    [entry] = known_evaluations(second)
    assert entry.source == ev.Source(run=first.pk, attempt=1, iteration=0)
    assert entry.evaluation.problems == event.problems
    assert ev.fingerprint_of(entry.evaluation) == event.fingerprint == entry.evaluation.fingerprint


def test_other_bases_seeds_sizes_and_projects_are_not(project: Project) -> None:
    measured(run_of(project, policy={"checkpoint": "another"}), weights="x")
    measured(run_of(project), seed=1)
    foreign = create_project(team=project.team, slug="other", name="Other")
    measured(run_of(foreign))
    assert known_evaluations(run_of(project)) == []
    measured(run_of(project))
    assert known_evaluations(run_of(project, evaluation={"seed": 0, "samples": 9, "final_samples": 9})) == []
    assert known_evaluations(run_of(project, policy={"architecture": {}})) == []
    assert len(known_evaluations(run_of(project))) == 1


def test_later_weights_reused_ones_and_those_of_the_first_release_are_not(project: Project) -> None:
    run = run_of(project)
    measured(run, 5, weights="later")
    measured(run, reused=ev.Source(run="x", attempt=1, iteration=0))
    assert known_evaluations(run_of(project)) == []
    measured(run)
    Evaluation.objects.filter(iteration=0).update(fingerprint="")
    assert known_evaluations(run_of(project)) == []


def test_a_damaged_row_is_left_out(project: Project) -> None:
    measured(run_of(project))
    row = Evaluation.objects.get()
    row.counts["c"] = [9, 9]
    row.save()
    assert known_evaluations(run_of(project)) == []
