"""LongAct in runs: what it leaves alone, what it logs, and where it is the base algorithm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from trainer.contract import events as ev
from trainer.contract.config import InvalidConfig
from trainer.contract.exit_codes import ExitCode
from trainer.loop import checkpoint_files
from trainer.methods import resolve
from trainer.testing.replay import Story, events_of, story_of

VALIDATED = {"every": 2, "problems": 4, "samples": 2, "final_problems": 0}
Runs = Callable[..., tuple[Story, Path]]


@pytest.fixture
def runs(run, document, tmp_path: Path) -> Runs:  # type: ignore[no-untyped-def]
    """``runs(params, …)``: four iterations with LongAct (None: without), their story and the final policy's folder."""

    def make(params: dict[str, Any] | None, **changes: Any) -> tuple[Story, Path]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        small: dict[str, Any] = {"budget": {"iterations": 4}, "evaluation": VALIDATED, "checkpoints": {"every": 0}}
        methods = [] if params is None else [{"slug": "longact", "params": params}]
        code = run(document(**{**small, "methods": methods, **changes}), folder)
        assert code == ExitCode.FINISHED, story_of(folder).last_message
        newest = checkpoint_files.newest_checkpoint(folder)
        assert newest is not None
        return story_of(folder), newest

    return make


def weights(folder: Path, name: str = "model.safetensors") -> dict[str, torch.Tensor]:
    return load_file(folder / "policies/policy" / name)


@pytest.mark.parametrize("params", [{"share": 1.0}, {"mode": "all"}])
def test_with_all_rows_it_is_the_base_algorithm_bit_for_bit(params: dict[str, Any], runs: Runs) -> None:
    plain, own = runs(None), runs(params)
    assert plain[0].checkpoints[4] == own[0].checkpoints[4]
    assert plain[0].rollouts == own[0].rollouts


def test_rows_that_are_never_chosen_do_not_move_and_everything_else_does(base: Path, runs: Runs) -> None:
    before = load_file(base / "base/model.safetensors")
    story, folder = runs({"share": 0.1, "refresh_every": 100})
    after = weights(folder)
    for name, weight in before.items():
        moved = (after[name] != weight).flatten(1).any(1) if weight.ndim == 2 else after[name] != weight
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            assert int(moved.sum()) == (4 if "q_proj" in name else 2)  # ⌈.1·32⌉ and ⌈.1·16⌉
        elif "embed" not in name and "lm_head" not in name:
            assert bool(moved.all())
    assert {v for (_, key), v in story.scalars.items() if key == "longact/masked_row_drift"} == {0.0}
    assert {v for (_, key), v in story.scalars.items() if key == "longact/rows_updated"} == {12.0}
    assert (2, "longact/mask_jaccard") not in story.scalars


def test_only_the_rows_are_trained_where_asked(base: Path, runs: Runs) -> None:
    before = load_file(base / "base/model.safetensors")
    after = weights(runs({"others": False})[1])
    moved = {name for name, weight in before.items() if not torch.equal(after[name], weight)}
    assert moved == {name for name in before if name.endswith(("q_proj.weight", "k_proj.weight"))}


def test_an_adapter_is_masked_in_the_rows_of_b(runs: Runs) -> None:
    lora = {"checkpoint": "base", "lora": {"rank": 4}}
    _, folder = runs({"share": 0.1, "refresh_every": 100}, policy=lora, optimizer={"learning_rate": 0.02})
    b = {n: w for n, w in weights(folder, "adapter_model.safetensors").items() if ".lora_B." in n}
    for name, weight in b.items():
        rows = int(weight.any(1).sum())
        assert rows == (4 if "q_proj" in name else 2 if "k_proj" in name else len(weight))


def test_what_it_logs(runs: Runs) -> None:
    story, folder = runs({})
    for kind in ("q", "k"):
        assert story.scalars[1, f"longact/saliency_max_over_median_{kind}"] > 1  # type: ignore[operator]
        assert 0 < story.scalars[1, f"longact/grad_kept_frac_{kind}"] < 1  # type: ignore[operator]
    assert 0.3 < story.scalars[1, "longact/selected_energy"] < 1  # type: ignore[operator]
    assert (1, "longact/mask_jaccard") not in story.scalars
    assert 0 < story.scalars[2, "longact/mask_jaccard"] <= 1  # type: ignore[operator]
    assert story.scalars[2, "eval/accuracy@64"] == story.scalars[2, "eval/accuracy"]
    drawn = [e.event for e in events_of(folder.parents[3]) if isinstance(e.event, ev.Heatmap)]
    shown = {h.key for h in drawn if h.axes.iteration == 4}
    assert {"longact/saliency", "longact/overlap"} <= shown
    assert {len(h.z) for h in drawn if h.key.startswith("longact/")} == {2}


def test_a_frozen_run_moves_nothing(base: Path, runs: Runs) -> None:
    story, folder = runs({}, optimizer={"learning_rate": 0.0})
    before, after = load_file(base / "base/model.safetensors"), weights(folder)
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    assert {v for (_, key), v in story.scalars.items() if key == "longact/masked_row_drift"} == {0.0}
    accuracies = [v for (_, key), v in story.scalars.items() if key == "eval/accuracy"]
    assert len(set(accuracies)) == 1


def test_several_processes_are_refused(document) -> None:  # type: ignore[no-untyped-def]
    made = document(methods=[{"slug": "longact"}], hardware={"processes": 2})
    with pytest.raises(InvalidConfig, match=r"hardware\.processes: .*found 2, expected 1"):
        resolve(made)
