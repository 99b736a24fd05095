"""Studies run: shared work is done once, a stop anywhere is gone on from, and the bits are those of runs alone."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from trainer.contract.exit_codes import ExitCode
from trainer.contract.results import StudyResults
from trainer.contract.study import Study
from trainer.core.errors import ConfigError, StopRequested
from trainer.loop.run import Attempt, run_attempt
from trainer.loop.study import RunFailed, Runner, _final_checkpoint

SPS = {"methods": [{"slug": "sps", "params": {"k_rl": 2}}]}
FROZEN = {"optimizer": {"learning_rate": 0}}
EVALUATION = {
    "problems": 4,
    "samples": 4,
    "validation_problems": 4,
    "validation_samples": 4,
    "temperatures": [1.0, 1.3],
    "ks": [1, 4],
}


def small(document: Any, **changes: Any) -> Study:
    launch = document(evaluation={"every": 0, "problems": 0}, checkpoints={"every": 1, "keep": 1})
    del launch["policy"]
    return Study.model_validate(
        {
            "slug": "small",
            "title": "Small",
            "method": "sps",
            "claim": "…",
            "base": {"checkpoint": "base"},
            "launch": launch,
            "arms": [
                {"name": "grpo", "title": "GRPO", "role": "baseline"},
                {"name": "half", "title": "Half", "role": "control", "family": "grpo", "budget_share": 0.5},
                {"name": "sps", "title": "SPS", "role": "method", "changes": SPS},
                {"name": "frozen", "title": "Frozen", "role": "null", "budget_share": 0.5, "changes": FROZEN},
            ],
            "seeds": [0, 1],
            "budget": {"axis": "iterations", "amount": 4},
            "evaluation": EVALUATION,
            "primary": {"arm": "sps", "against": "grpo", "metric": "pass@4"},
            **changes,
        }
    )  # fmt: skip


def runner(study: Study, out: Path, files: Path, **options: Any) -> Runner:
    return Runner(study, "full", out, files=files, show=io.StringIO(), **options)


def measured(out: Path) -> StudyResults:
    return StudyResults.model_validate(json.loads((out / "results.json").read_text())["results"])


def attempts(out: Path) -> dict[str, int]:
    return {str(p.relative_to(out)): len(list(p.glob("*"))) for p in sorted(out.rglob("attempts"))}


def without_time(results: StudyResults) -> dict[str, Any]:
    document = results.model_dump(mode="json")
    for run in document["runs"]:
        del run["device_seconds"]
    return document


def test_a_study_stopped_again_and_again_ends_as_one_left_alone(base, document, tmp_path) -> None:
    study = small(document)
    found = runner(study, tmp_path / "alone", base).run()
    assert found.verdict == "not run yet"
    assert "2 of 2 seeds" in found.reasons[0]

    class Stopper:
        """Says stop at every twentieth question, so that each start gets a little further."""

        asked = 0

        def __call__(self) -> bool:
            self.asked += 1
            return self.asked % 20 == 0

    stops, stop = 0, Stopper()
    while True:
        try:
            runner(study, tmp_path / "stopped", base, stop=stop).run()
            break
        except StopRequested:
            stops += 1
    assert stops > 3
    assert max(attempts(tmp_path / "stopped").values()) > 1
    assert without_time(measured(tmp_path / "stopped")) == without_time(measured(tmp_path / "alone"))


def test_what_is_shared_is_done_once(base, document, tmp_path) -> None:
    study = small(document)
    out = tmp_path / "out"
    runner(study, out, base).run()
    results = measured(out)
    weights = {run.weights_hash for run in results.runs}
    assert {run.weights_hash for run in results.runs if run.arm == "frozen"} == {results.base_weights_hash}
    assert len(weights) == 7  # three arms with two seeds, and the base
    assert len(results.counts) == 2 * (6 * 2 + 1)  # at two temperatures; the base on test alone
    before = attempts(out)
    again = runner(study, out, base)
    again.run()
    assert attempts(out) == before
    assert again.show.getvalue() == ""


def test_an_arm_that_goes_on_from_a_shorter_one_has_the_bits_of_a_run_alone(base, document, tmp_path) -> None:
    study = small(document)
    out = tmp_path / "out"
    runner(study, out, base, seeds=(1,), arms=("half", "grpo")).run()
    results = measured(out)
    whole = next(run for run in results.runs if run.arm == "grpo")
    marks = (out / "runs/grpo/1/attempts/1/events.jsonl").read_text()
    assert "resumed from iteration 2" in marks
    assert (whole.iterations, whole.phases) == (4, {"rl": 4})
    alone = study.document(study.arms[0], seed=1, checkpoint="base", form="full")
    attempt = Attempt(run=tmp_path / "run", number=1, files=base, resume=False, stop=lambda: False)
    assert run_attempt(alone, attempt) == ExitCode.FINISHED
    assert _final_checkpoint(tmp_path / "run")[1] == whole.weights_hash


def test_a_study_that_trains_its_base_does_so_once(base, document, tmp_path) -> None:
    train = {
        "kind": "sft", "policy": {"checkpoint": "base"}, "task": {"name": "mod_chain", "problems": 24},
        "sft": {"rows": 64, "batch_size": 16}, "budget": {"iterations": 2}, "sampling": {"max_new_tokens": 4},
        "evaluation": {"every": 0, "problems": 0, "final_problems": 0}, "checkpoints": {"every": 0},
    }  # fmt: skip
    study = small(document, base={"train": train}, seeds=[0])
    out = tmp_path / "out"
    runner(study, out, base).run()
    hashes = {run.weights_hash for run in measured(out).runs if run.arm == "frozen"}
    assert hashes == {_final_checkpoint(out / "base")[1]}
    assert attempts(out)["base/attempts"] == 1


def test_another_wording_of_the_study_needs_another_folder(base, document, tmp_path) -> None:
    out = tmp_path / "out"
    runner(small(document), out, base, arms=("frozen",), seeds=(0,)).run()
    runner(small(document, claim="in other words"), out, base, arms=("frozen",), seeds=(0,)).run()
    with pytest.raises(ConfigError, match="choose another --out"):
        runner(small(document, seeds=[0]), out, base).run()


def test_a_run_that_fails_says_which_and_why(base, document, tmp_path) -> None:
    study = small(document, base={"checkpoint": "nowhere"})
    with pytest.raises(ConfigError, match="nowhere"):
        runner(study, tmp_path / "other", base).run()
    study = small(document)
    (tmp_path / "out/runs/frozen/0").mkdir(parents=True)
    (tmp_path / "out/runs/frozen/0/config.json").mkdir()
    with pytest.raises(RunFailed, match="Frozen, seed 0"):
        runner(study, tmp_path / "out", base).run()
