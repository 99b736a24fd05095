"""The index, and the rows behind it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.http import Http404

from tests.webapp.making import claimed, make_run, send
from trainer.contract import events as ev
from webapp.projects.models import Project
from webapp.rollouts import selectors
from webapp.runs.models import Run
from webapp.runs.selectors import log_tail
from webapp.runs.storage import path_of, run_uri

URI = "attempts/1/rollouts/part-00000001.parquet"


@pytest.fixture
def run(project: Project, settings: Any, tmp_path: Path) -> Run:
    settings.FILES_DIR = tmp_path
    return make_run(project)


def event(uri: str = URI, iteration: int = 1) -> ev.Rollouts:
    groups = [
        ev.RolloutGroup(uid=f"u{i}", text=f"{i} + 1 =", answer=str(i + 1), n=2, c=i % 2, first_row=2 * i)
        for i in range(3)
    ]
    return ev.Rollouts(axes=ev.Axes(iteration=iteration), uri=uri, rows=6, groups=groups)


def write(run: Run, rows: int = 6, row_group_size: int = 6) -> None:
    path = path_of(run_uri(run.pk, URI))
    path.parent.mkdir(parents=True)
    rewards = [math.nan if i == 3 else float(i) for i in range(rows)]
    table = pa.table({"text": [f"answer {i}" for i in range(rows)], "reward": rewards})
    pq.write_table(table, path, row_group_size=row_group_size)


@pytest.mark.parametrize("row_group_size", [1, 2, 4, 6])
def test_a_groups_rows_are_read_wherever_they_lie(run: Run, row_group_size: int) -> None:
    send(claimed(run), [event()])
    write(run, row_group_size=row_group_size)
    groups = list(selectors.groups_at(run, 1))
    assert [(g.uid, g.c) for g in groups] == [("u0", 0), ("u1", 1), ("u2", 0)]
    assert [r["text"] for r in selectors.rows_of(groups[2])] == ["answer 4", "answer 5"]
    assert [r["reward"] for r in selectors.rows_of(groups[1])] == [2.0, "nan"]


def test_a_part_that_is_gone_or_cut_is_told(run: Run) -> None:
    send(claimed(run), [event()])
    last = list(selectors.groups_at(run, 1))[-1]
    with pytest.raises(selectors.PartMissing, match="cannot be read"):
        selectors.rows_of(last)
    write(run, rows=5)
    with pytest.raises(selectors.PartMissing, match="ends before row 6"):
        selectors.rows_of(last)


def test_a_uri_out_of_the_runs_folder_is_refused_and_told(run: Run) -> None:
    send(claimed(run), [event("../../other/secret.parquet"), event()])
    assert selectors.iterations_of(run) == [1]
    assert "without '..'" in log_tail(run)[0]["message"]


def test_prompts_are_counted_over_all_iterations(run: Run) -> None:
    send(claimed(run), [event(), event("attempts/1/rollouts/part-00000002.parquet", 2)])
    found = list(selectors.prompts_of(run, search="1 +"))
    assert [(p["uid"], p["times"], p["rollouts"], p["correct"]) for p in found] == [("u1", 2, 4, 2)]
    assert [g.iteration for g in selectors.history_of(run, "u1")] == [1, 2]


def test_another_runs_group_is_not_found(run: Run, project: Project) -> None:
    send(claimed(run), [event()])
    group = selectors.groups_at(run, 1)[0]
    with pytest.raises(Http404):
        selectors.group_in(make_run(project), group.pk)
