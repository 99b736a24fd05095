"""A stop between the two evaluations of the last iteration: what was measured is not measured and told again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer.contract import events as ev
from trainer.contract.exit_codes import ExitCode
from trainer.testing.replay import events_of, story_of

Document, Runner = Callable[..., dict[str, Any]], Callable[..., ExitCode]


def evaluations(folder: Path) -> list[ev.Envelope]:
    """Every evaluation that was told."""
    return [envelope for envelope in events_of(folder) if isinstance(envelope.event, ev.Evaluation)]


def test_a_resumed_run_goes_on_with_the_evaluation_that_was_interrupted(
    run: Runner, document: Document, tmp_path: Path
) -> None:
    config = document(budget={"iterations": 3}, seed=5)
    assert run(config, tmp_path / "whole") == ExitCode.FINISHED
    stopped: list[str] = []

    def stop_after_validation(event: Any) -> None:
        if isinstance(event, ev.Evaluation) and event.axes.iteration == 3:
            stopped.append(event.name)

    folder = tmp_path / "stopped"
    # The evaluations of the whole run are stored, and a stored one is not sampled, so that no stop comes in between.
    fresh = {**config, "evaluation": {**config["evaluation"], "seed": 1}}
    code = run(fresh, folder, echo=stop_after_validation, stop=lambda: bool(stopped))
    assert (code, stopped) == (ExitCode.STOPPED, ["validation"])
    assert run(fresh, folder, resume=True) == ExitCode.FINISHED
    told = [(e.attempt, e.event.axes.iteration, e.event.name) for e in evaluations(folder)]
    assert told == [(1, 0, "validation"), (1, 3, "validation"), (2, 3, "test")]
    spent = [e.event.axes.evaluation_tokens for e in evaluations(folder)]
    assert spent == sorted(set(spent)), "what was measured before the stop stays counted"
    assert story_of(folder).scalars.keys() == story_of(tmp_path / "whole").scalars.keys()


def test_a_run_that_only_evaluates_is_stopped_and_not_crashed(run: Runner, document: Document, tmp_path: Path) -> None:
    config = {name: document()[name] for name in ("policy", "task", "sampling")}
    config |= {"kind": "evaluate", "evaluation": {"final_problems": 4, "final_samples": 4, "seed": 7}}
    assert run(config, tmp_path, stop=lambda: True) == ExitCode.STOPPED
    assert run(config, tmp_path, resume=True) == ExitCode.FINISHED
    assert [e.attempt for e in evaluations(tmp_path)] == [2]
