"""Stop strings of the configuration: they end answers of rollouts and evaluations alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from trainer.contract import events as ev
from trainer.contract.exit_codes import ExitCode
from trainer.testing.replay import events_of, story_of

Runner = Callable[..., ExitCode]
# Half of the digits: some answers end by one, others by themselves.
DIGITS = list("01234")


def sampling(*stop: str) -> dict[str, Any]:
    return {"max_new_tokens": 4, "stop": list(stop)}


def of_kind(folder: Path, kind: type) -> list[Any]:
    return [e.event for e in events_of(folder) if isinstance(e.event, kind)]


def test_an_answer_ends_with_the_stop_string_which_is_kept_judged_and_trained(
    run: Runner, document: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    short = {"budget": {"iterations": 2}, "evaluation": {"every": 2, "problems": 5, "samples": 8, "final_problems": 0}}
    assert run(document(sampling=sampling(*DIGITS), **short), tmp_path / "stop") == ExitCode.FINISHED
    assert run(document(sampling=sampling(), **short), tmp_path / "free") == ExitCode.FINISHED
    seen = set()
    for part in of_kind(tmp_path / "stop", ev.Rollouts):
        for row in pq.read_table(tmp_path / "stop" / part.uri).to_pylist():
            ended = row["text"].endswith(tuple(DIGITS))
            assert (row["end"] == "stop") == ended
            # A character is a token, and the end-of-sequence token is no character.
            assert row["tokens"] == len(row["text"]) + (row["end"] == "eos")
            seen.add(row["end"])
    assert {"stop", "eos"} <= seen
    axes = story_of(tmp_path / "stop").axes[2]
    assert axes["trained_tokens"] == axes["sampled_tokens"]
    (with_stop, *_), (without, *_) = (of_kind(tmp_path / name, ev.Evaluation) for name in ("stop", "free"))
    assert with_stop.set.sampler.stop == sorted(DIGITS)
    assert with_stop.set_id != without.set_id
    assert with_stop.weights_hash == without.weights_hash
    assert with_stop.mean_length < without.mean_length
    assert not any(p.truncated for p in with_stop.problems)


def test_a_stop_string_that_the_tokenizer_cannot_write_is_refused(
    run: Runner, document: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    assert run(document(sampling=sampling("é")), tmp_path / "r") == ExitCode.CONFIG
    message = story_of(tmp_path / "r").last_message
    assert "sampling.stop" in message
    assert "'é'" in message


def test_the_order_of_stop_strings_makes_no_other_evaluation_set(
    run: Runner, document: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    sets = set()
    for name, stop in (("a", ("1", "2")), ("b", ("2", "1", "2"))):
        short = {"kind": "evaluate", "policy": {"checkpoint": "base"}, "task": document()["task"],
                 "sampling": sampling(*stop), "evaluation": {"final_problems": 2, "final_samples": 2}}  # fmt: skip
        assert run(short, tmp_path / name) == ExitCode.FINISHED
        sets.add(of_kind(tmp_path / name, ev.Evaluation)[0].set_id)
    assert len(sets) == 1


@pytest.mark.parametrize("bad", ["", "x" * 201])
def test_a_stop_string_has_a_length(run: Runner, document: Any, tmp_path: Path, bad: str) -> None:
    assert run(document(sampling=sampling(bad)), tmp_path / "r") == ExitCode.CONFIG
    assert "sampling.stop.0" in story_of(tmp_path / "r").last_message
