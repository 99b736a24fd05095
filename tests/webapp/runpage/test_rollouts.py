"""The rollouts tab: filters, deep links, and texts that a model wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.webapp.making import claimed, make_run, send
from trainer.contract import events as ev
from webapp.projects.models import Project
from webapp.runpage.rollouts import browse
from webapp.runs.models import Run
from webapp.runs.storage import path_of, run_uri

ATTACK = "<img src=x onerror=alert(1)>"


def row(uid: str, index: int, **changes: Any) -> dict[str, Any]:
    correct = changes.get("correct", False)
    return {
        "uid": uid, "index": index, "text": f"{uid} sample {index}", "reward": float(correct),
        "rewards": json.dumps({"exact": float(correct)}), "advantage": 0.5, "tokens": 5, "end": "eos", "answer": "1",
        "canonical": "c" if correct else None, "correct": correct, "logprob": -1.0, **changes,
    }  # fmt: skip


def part(run: Run, iteration: int, groups: dict[str, list[dict[str, Any]]]) -> ev.Rollouts:
    """A Parquet part on disk and the event that names it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    uri = f"attempts/1/rollouts/part-{iteration:08d}.parquet"
    path: Path = path_of(run_uri(run.pk, uri))
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [one for group in groups.values() for one in group]
    pq.write_table(pa.Table.from_pylist(rows), path)
    index, first = [], 0
    for uid, group in groups.items():
        solved = sum(bool(one["correct"]) for one in group)
        index.append(ev.RolloutGroup(uid=uid, text=f"prompt {uid}", n=len(group), c=solved, first_row=first))
        first += len(group)
    return ev.Rollouts(axes=ev.Axes(iteration=iteration), uri=uri, rows=len(rows), groups=index)


@pytest.fixture
def run(project: Project) -> Run:
    run = make_run(project)
    first = [
        row("p1", 0, correct=True, canonical="a"),
        row("p1", 1, correct=True, canonical="a"),
        row("p1", 2, correct=True, canonical="b"),
        row("p1", 3, reward=0.2),
    ]
    second = [row("p2", 0, end="length", tokens=99), row("p2", 1, text=ATTACK, answer=None, advantage=float("nan"))]
    send(claimed(run), [part(run, 3, {"p1": first, "p2": second}), part(run, 7, {"p1": first})])
    return run


def shown(run: Run, **query: str) -> list[tuple[str, int]]:
    return [(card["uid"], card["index"]) for card in browse(run, **query).cards]


def test_the_newest_iteration_and_its_first_prompt_are_open(run: Run) -> None:
    found = browse(run)
    assert (found.iterations, found.iteration) == ([3, 7], 7)
    assert found.chosen is not None
    assert [group.iteration for group in found.history] == [3, 7]


def test_an_iteration_without_rollouts_leads_to_the_nearest(run: Run) -> None:
    assert browse(run, iteration="4").iteration == 3
    assert browse(run, iteration="5").iteration == 7
    assert browse(run, iteration="x").iteration == 7


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ("right", [("p1", 0), ("p1", 1), ("p1", 2)]),
        ("wrong", [("p1", 3), ("p2", 0), ("p2", 1)]),
        ("rewarded", [("p1", 3)]),
        ("truncated", [("p2", 0)]),
        ("rarest", [("p1", 2), ("p1", 0), ("p1", 1)]),
    ],
)
def test_a_filter_looks_at_the_whole_iteration(run: Run, only: str, expected: list[tuple[str, int]]) -> None:
    assert shown(run, iteration="3", only=only) == expected


def test_the_longest_come_first(run: Run) -> None:
    assert shown(run, iteration="3", only="longest")[0] == ("p2", 0)


def test_a_filter_with_a_prompt_looks_at_that_prompt(run: Run) -> None:
    assert shown(run, iteration="3", prompt="p2", only="wrong") == [("p2", 0), ("p2", 1)]


def test_an_unknown_filter_is_none(run: Run) -> None:
    assert len(shown(run, iteration="3", prompt="p1", only="nonsense")) == 4


def test_what_a_model_wrote_is_shown_as_text(run: Run, client_of: Callable[[str], Client]) -> None:
    url = reverse("runpage:rollouts", args=run.url_args)
    text = client_of("viewer").get(url, {"iteration": "3", "prompt": "p2"}).content.decode()
    assert ATTACK not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert 'title="No answer could be read">—</span>' in text
    assert 'title="This phase has no advantages, or the group taught nothing">—</span>' in text


def test_a_missing_file_is_said_and_the_prompts_stay(run: Run, client_of: Callable[[str], Client]) -> None:
    path_of(run_uri(run.pk, "attempts/1/rollouts/part-00000007.parquet")).unlink()
    text = client_of("viewer").get(reverse("runpage:rollouts", args=run.url_args)).content.decode()
    assert "These rollouts cannot be shown on this host." in text
    assert "prompt p1" in text
