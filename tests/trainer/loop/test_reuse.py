"""An evaluation of the same weights on the same set is measured once, and reusing it changes nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.contract import events as ev
from trainer.contract.exit_codes import ExitCode
from trainer.contract.known import KNOWN_FILE, KnownEvaluation, write_known
from trainer.loop.run import Attempt, run_attempt
from trainer.testing.replay import events_of, story_of


def evaluations(run: Path) -> list[ev.Evaluation]:
    return [e.event for e in events_of(run) if isinstance(e.event, ev.Evaluation)]


def known(run: Path) -> list[dict[str, Any]]:
    """What a launcher would hand on of a run: its evaluations without their sets."""
    return [
        KnownEvaluation(
            source=ev.Source(run=envelope.run, attempt=envelope.attempt, iteration=envelope.event.axes.iteration),
            evaluation=envelope.event.model_copy(update={"set": None, "reused": None}),
        ).model_dump(mode="json")
        for envelope in events_of(run)
        if isinstance(envelope.event, ev.Evaluation)
    ]


@pytest.fixture
def first(base: Path) -> Callable[[dict[str, Any], Path], ExitCode]:
    """The first attempt of a run whose folder may hold something for it already."""
    return lambda document, run: run_attempt(document, Attempt(run, 1, base, resume=False, stop=lambda: False))


def hand(run: Path, entries: list[Any]) -> None:
    path = run / "attempts/1" / KNOWN_FILE
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"schema_version": 1, "evaluations": entries}))


@pytest.fixture(scope="module")
def measured(base: Path, document: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "measured"
    assert run_attempt(document(seed=3), Attempt(run, 1, base, resume=False, stop=lambda: False)) == ExitCode.FINISHED
    return run


def test_another_run_reuses_the_base_and_the_rest_is_the_same(first, document, measured: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    first(document(seed=5), tmp_path / "alone")
    hand(tmp_path / "helped", known(measured))
    first(document(seed=5), tmp_path / "helped")
    alone, helped = evaluations(tmp_path / "alone"), evaluations(tmp_path / "helped")
    assert [e.reused for e in alone] == [None] * 5
    assert helped[0].reused == ev.Source(run="measured", attempt=1, iteration=0)
    assert [e.reused for e in helped[1:]] == [None] * 4
    assert helped[0].set is not None
    assert [e.model_copy(update={"reused": None, "axes": a.axes}) for e, a in zip(helped, alone, strict=True)] == alone
    assert story_of(tmp_path / "helped") == story_of(tmp_path / "alone")
    assert [e.axes.evaluation_tokens for e in helped] == [e.axes.evaluation_tokens for e in alone]


def changed(entry: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**entry, "evaluation": {**entry["evaluation"], **fields}}


def better(entry: dict[str, Any]) -> dict[str, Any]:
    problems = [dict(p) for p in entry["evaluation"]["problems"]]
    problems[0] |= {"c": 4, "correct_forms": [4]} if problems[0]["c"] != 4 else {"c": 0, "correct_forms": []}
    return changed(entry, problems=problems)


def refingerprinted(entry: dict[str, Any]) -> dict[str, Any]:
    event = ev.Evaluation.model_validate(entry["evaluation"])
    event = event.model_copy(update={"problems": event.problems[:-1]})
    event = event.model_copy(update={"fingerprint": ev.fingerprint_of(event)})
    return {**entry, "evaluation": event.model_dump(mode="json")}


@pytest.mark.parametrize(
    ("tamper", "told"),
    [
        (better, "do not agree with its fingerprint"),
        (lambda entry: changed(entry, token_entropy=0.0), "do not agree with its fingerprint"),
        (refingerprinted, "its problems are not those of the set"),
        (lambda entry: changed(entry, problems="none"), "entry 1 of known_evaluations.json is no evaluation"),
        (lambda entry: 7, "entry 1 of known_evaluations.json is no evaluation"),
    ],
)
def test_a_tampered_evaluation_is_refused_and_measured_anew(
    tamper: Callable[[dict[str, Any]], Any], told: str, first, document, measured: Path, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    hand(tmp_path / "r", [tamper(known(measured)[0])])
    first(document(budget={"iterations": 1}), tmp_path / "r")
    found = evaluations(tmp_path / "r")[0]
    assert found.reused is None
    assert found.problems == evaluations(measured)[0].problems
    logs = [e.event.message for e in events_of(tmp_path / "r") if isinstance(e.event, ev.Log)]
    assert any(told in message for message in logs)


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"schema_version": 1}', '{"schema_version": 9, "evaluations": []}', "[" * 100_000]
)
def test_a_file_that_is_no_list_of_evaluations_costs_nothing_but_a_warning(
    content: str, first, document, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    hand(tmp_path / "r", [])
    (tmp_path / "r/attempts/1" / KNOWN_FILE).write_text(content)
    assert first(document(budget={"iterations": 1}), tmp_path / "r") == ExitCode.FINISHED
    assert evaluations(tmp_path / "r")[0].reused is None
    logs = [e.event.message for e in events_of(tmp_path / "r") if isinstance(e.event, ev.Log)]
    assert any("known_evaluations.json cannot be read" in message for message in logs)


@pytest.mark.parametrize(
    "other",
    [
        {"evaluation": {"every": 3, "problems": 5, "samples": 4, "final_problems": 4, "final_samples": 4, "seed": 1}},
        {"evaluation": {"every": 3, "problems": 5, "samples": 5, "final_problems": 4, "final_samples": 4}},
        {"sampling": {"max_new_tokens": 5}},
    ],
    ids=["seed", "samples", "length"],
)
def test_other_draws_or_another_set_are_measured(
    other: dict[str, Any], first, document, measured: Path, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    hand(tmp_path / "r", known(measured))
    first(document(budget={"iterations": 1}, **other), tmp_path / "r")
    assert [e.reused for e in evaluations(tmp_path / "r")] == [None] * 3


def test_another_engine_is_measured(first, document, measured: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    event = ev.Evaluation.model_validate(known(measured)[0]["evaluation"]).model_copy(update={"engine": "vllm 1"})
    event = event.model_copy(update={"fingerprint": ev.fingerprint_of(event)})
    source = ev.Source(run="other", attempt=1, iteration=0)
    write_known(tmp_path / "r/attempts/1" / KNOWN_FILE, [KnownEvaluation(source=source, evaluation=event)])
    first(document(budget={"iterations": 1}), tmp_path / "r")
    assert evaluations(tmp_path / "r")[0].reused is None


def test_a_frozen_run_measures_its_weights_once(first, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    first(document(optimizer={"learning_rate": 0.0}), tmp_path / "r")
    validations = [e for e in evaluations(tmp_path / "r") if e.name == "validation"]
    assert [e.reused.iteration if e.reused else None for e in validations] == [None, 0, 0, 0]
    tokens = [e.axes.evaluation_tokens for e in validations]
    assert tokens == [tokens[0], 2 * tokens[0], 3 * tokens[0], 4 * tokens[0]]


def test_validations_come_with_figures_and_other_iterations_do_not(measured: Path) -> None:
    figures = story_of(measured).figures
    rollouts = {"length", "reward", "length_reward", "examples", "longest"}
    assert {k for i, k in figures if i == 3} == {"validation/success", "validation/answer_mass"} | {
        f"rollouts/{name}" for name in rollouts
    }
    assert {k for i, k in figures if i == 0} == {"validation/success", "validation/answer_mass"}
    assert {i for i, _ in figures} == {0, 3, 6, 7}
    assert sum(figures[3, "rollouts/length"]["counts"]) == 16
    assert sum(figures[3, "validation/success"]["counts"]) == 5
    assert len(figures[3, "rollouts/examples"]["rows"]) == 16
    kinds = {figures[key]["kind"] for key in figures}
    assert kinds == {"histogram", "heatmap", "scatter", "table", "text"}
