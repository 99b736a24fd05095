"""Which checkpoints are kept and why, over all attempts of a run, and what is never removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import timezone

from tests.conftest import Cast
from tests.webapp.making import make_run
from webapp.checkpoints import retention
from webapp.checkpoints.models import Checkpoint, RunInput
from webapp.checkpoints.retention import Rule
from webapp.checkpoints.services import set_pinned
from webapp.runs.models import Run
from webapp.runs.storage import path_of


@pytest.fixture
def run(cast: Cast, settings: Any, tmp_path: Path) -> Run:
    settings.FILES_DIR = tmp_path
    run = make_run(cast.project)
    Run.objects.filter(pk=run.pk).update(state="finished", config={"kind": "rl", "checkpoints": {"keep": 2}})
    return Run.objects.get(pk=run.pk)


def save(run: Run, iteration: int, *, attempt: int = 1, **fields: Any) -> Checkpoint:
    uri = f"runs/{run.pk}/attempts/{attempt}/checkpoints/it-{iteration:08d}"
    path_of(uri).mkdir(parents=True)
    (path_of(uri) / "manifest.json").write_text("{}")
    return Checkpoint.objects.create(
        project=run.project, run=run, attempt=attempt, iteration=iteration, name=f"{iteration}", uri=uri,
        policy_uri=f"{uri}/policies/policy", weights_hash="h", created_at=timezone.now(), **fields,
    )  # fmt: skip


def kept(run: Run, rule: Rule) -> dict[int, tuple[str, ...]]:
    return {v.checkpoint.iteration or 0: v.reasons for v in retention.plan_for_run(run, rule)}


def test_the_newest_of_all_attempts_and_the_best_are_kept_with_reasons(run: Run) -> None:
    save(run, 10, metrics={"eval/accuracy": 0.5})
    save(run, 20, metrics={"eval/accuracy": 0.7})
    save(run, 30, retired=True, metrics={"eval/accuracy": 0.9})
    save(run, 25, attempt=2)
    save(run, 35, attempt=2, metrics={"eval/accuracy": 0.6}, final=True)
    assert kept(run, Rule(keep=2, keep_best=1)) == {
        35: ("the final one", "one of the 2 newest"),
        30: (),
        25: ("one of the 2 newest",),
        20: ("the best by eval/accuracy",),
        10: (),
    }


def test_applied_the_files_go_and_the_rows_stay(run: Run) -> None:
    rows = [save(run, iteration, attempt=attempt) for attempt, iteration in ((1, 10), (1, 20), (2, 30), (3, 40))]
    gone = retention.apply_to_run(run.pk)
    assert [row.iteration for row in gone] == [20, 10]
    assert [path_of(row.uri).exists() for row in rows] == [False, False, True, True]
    assert [Checkpoint.objects.get(pk=row.pk).available for row in rows] == [False, False, True, True]
    assert retention.apply_to_run(run.pk) == []


def test_what_a_run_started_from_and_what_is_pinned_stays(run: Run, cast: Cast) -> None:
    base, _pinned, loose = save(run, 10), save(run, 20, retired=True, pinned=True), save(run, 30)
    save(run, 40)
    RunInput.objects.create(run=make_run(cast.project), checkpoint=base, role="base")
    assert kept(run, Rule(keep=1)) == {
        40: ("the newest",), 30: (), 20: ("pinned",), 10: ("a run started from it",)
    }  # fmt: skip
    assert retention.apply_to_run(run.pk, Rule(keep=1)) == [loose]


def test_an_unfinished_run_keeps_the_newest_whole_one_to_go_on_from(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(state="lost")
    run.refresh_from_db()
    save(run, 10)
    save(run, 20, damage="file 'x' is missing")
    assert kept(run, Rule(keep=0)) == {20: (), 10: ("the run goes on from it",)}
    assert kept(run, Rule(keep=1)) == {20: (), 10: ("the run goes on from it", "the newest")}


def test_where_all_are_damaged_none_is_removed(run: Run) -> None:
    save(run, 10, damage="x")
    assert kept(run, Rule(keep=0)) == {10: ("damaged, but there is no whole one",)}


def test_deleting_by_hand_says_what_a_checkpoint_is_needed_for(run: Run, cast: Cast) -> None:
    first, last = save(run, 10), save(run, 20)
    RunInput.objects.create(run=make_run(cast.project, name="child"), checkpoint=first, role="base")
    with pytest.raises(ValidationError, match="10 is not deleted: runs started from it: child"):
        retention.delete(first)
    set_pinned(checkpoint=last, pinned=True)
    with pytest.raises(ValidationError, match="it is pinned; unpin it first"):
        retention.delete(last)
    set_pinned(checkpoint=last, pinned=False)
    Run.objects.filter(pk=run.pk).update(state="stopped")
    with pytest.raises(ValidationError, match="is not finished and goes on from it"):
        retention.delete(last)
    Run.objects.filter(pk=run.pk).update(state="finished")
    assert retention.delete(last).removed_at is not None
    assert not path_of(last.uri).exists()


def test_a_projects_rule_is_applied_daily_only_where_it_says_so(run: Run) -> None:
    save(run, 10)
    save(run, 20)
    retention.set_rule(project=run.project, keep=1, keep_best=0, best_metric="eval/accuracy", automatic=False)
    assert retention.apply_automatic() == 0
    retention.set_rule(project=run.project, keep=1, keep_best=0, best_metric="eval/accuracy", automatic=True)
    assert retention.apply_automatic() == 1


def test_a_projects_rule_leaves_runs_at_work_alone(run: Run) -> None:
    save(run, 10)
    save(run, 20)
    Run.objects.filter(pk=run.pk).update(state="running")
    assert retention.plan_for_project(run.project, Rule(keep=1)) == []


def test_a_rule_that_is_none_shows_no_preview_and_cannot_be_applied(cast: Cast, run: Run, client: Client) -> None:
    save(run, 10)
    client.force_login(cast["owner"])
    address = f"/p/{cast.team.slug}/{cast.project.slug}/checkpoints/retention"
    wrong = client.get(f"{address}?keep=x&keep_best=0&best_metric=eval/accuracy").content.decode()
    assert "Enter a whole number" in wrong
    assert "would be removed" not in wrong
    assert "apply it now" not in wrong
    assert "0 of 1 checkpoint would be removed" in client.get(address).content.decode()


def test_only_what_the_preview_showed_goes_and_a_second_press_removes_nothing_more(
    cast: Cast, run: Run, client: Client
) -> None:
    old, new = save(run, 10), save(run, 20)
    client.force_login(cast["owner"])
    address = f"/p/{cast.team.slug}/{cast.project.slug}/checkpoints/retention"
    rule = {"keep": "1", "keep_best": "0", "best_metric": "eval/accuracy"}
    page = client.get(address, rule).content.decode()
    assert f'name="goes" value="{old.pk}"' in page
    save(run, 30)  # meanwhile, in another window
    done = client.post(address, {**rule, "goes": str(old.pk)}, follow=True).content.decode()
    assert "The files of 1 checkpoint were removed." in done
    standing = dict(Checkpoint.objects.values_list("pk", "removed_at"))
    assert standing[old.pk] is not None
    assert standing[new.pk] is None
    again = client.post(address, {**rule, "goes": str(old.pk)}, follow=True).content.decode()
    assert "The files of 0 checkpoints were removed." in again
    assert "1 other was left alone" in again
