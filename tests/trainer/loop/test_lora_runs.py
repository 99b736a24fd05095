"""Runs with LoRA: what is trained, what is saved, where the reference stands, and what starts from an adapter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from trainer.cli import main
from trainer.contract.exit_codes import ExitCode
from trainer.policy.load import load_policy
from trainer.testing.replay import story_of

LORA = {"policy": {"checkpoint": "base", "lora": {"rank": 4}}}
KL = {"algorithm": {"prompts_per_iteration": 4, "num_generations": 4, "kl_coef": 0.1}}
FAST = {"optimizer": {"learning_rate": 0.02}, "budget": {"iterations": 3}}


def saved(run: Path, iteration: int) -> Path:
    return run / f"attempts/1/checkpoints/it-{iteration:08d}/policies/policy"


@pytest.fixture(scope="module")
def trained(base: Path, document: Any) -> Path:
    """A run of three iterations with LoRA, in the storage; ``adapter`` is what it saved."""
    from trainer.loop.run import Attempt, run_attempt

    folder = base / "runs" / "lora"
    attempt = Attempt(run=folder, number=1, files=base, resume=False, stop=lambda: False)
    assert run_attempt(document(**LORA, **KL, **FAST), attempt) == ExitCode.FINISHED, story_of(folder).last_message
    return folder


def test_the_kl_to_the_base_starts_at_exactly_0_and_grows(trained: Path) -> None:
    story = story_of(trained)
    assert story.scalars[1, "kl"] == 0.0
    assert story.scalars[3, "kl"] > 0.0


def test_only_the_adapter_is_saved_and_optimised(trained: Path) -> None:
    folder = saved(trained, 3)
    assert not list(folder.glob("model*.safetensors"))
    tensors = load_file(folder / "adapter_model.safetensors")
    assert any(bool(value.any()) for name, value in tensors.items() if ".lora_B." in name)
    moments = load_file(folder.parents[1] / "optimizer.policy.safetensors")
    assert moments
    assert all(".lora_A.default." in name or ".lora_B.default." in name for name in moments)


def test_a_run_from_an_adapter_trains_it_on_with_that_adapter_as_its_reference(
    run: Any, document: Any, trained: Path, base: Path, tmp_path: Path
) -> None:
    start = "runs/lora/attempts/1/checkpoints/it-00000003"
    assert run(document(policy={"checkpoint": start}, **KL, **FAST), tmp_path / "r") == ExitCode.FINISHED
    story = story_of(tmp_path / "r")
    assert story.scalars[1, "kl"] == 0.0
    assert story.scalars[3, "kl"] > 0.0
    named = json.loads((saved(tmp_path / "r", 3) / "base.json").read_text())
    assert named["uri"] == "base"
    before = load_policy(saved(trained, 3), files=base).model.state_dict()
    after = load_policy(saved(tmp_path / "r", 3), files=base).model.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved
    assert all(".lora_" in name for name in moved)
    # The evaluation of the start is of the very weights that were saved.
    assert story.checkpoints.keys() >= {3}


def test_an_evaluation_of_an_adapter_measures_it_on_its_base(
    trained: Path, base: Path, tmp_path: Path, capsys: Any
) -> None:
    code = main(
        [
            "evaluate",
            str(saved(trained, 3)),
            "--task",
            "mod_chain",
            "--n",
            "4",
            "--problems",
            "4",
            "--max-new-tokens",
            "4",
        ]
    )
    assert code == ExitCode.FINISHED
    found = json.loads(capsys.readouterr().out)
    assert found["weights"] == load_policy(saved(trained, 3), files=base).weights_hash


def test_merge_writes_a_plain_folder_from_the_command_line(
    trained: Path, base: Path, tmp_path: Path, capsys: Any
) -> None:
    adapter = "runs/lora/attempts/1/checkpoints/it-00000003"
    assert main(["merge", adapter, "--out", str(tmp_path / "plain"), "--files", str(base)]) == ExitCode.FINISHED
    assert json.loads(capsys.readouterr().out)["weights_hash"] == load_policy(tmp_path / "plain").weights_hash
    assert main(["merge", "base", "--out", str(tmp_path / "no"), "--files", str(base)]) == ExitCode.CONFIG
    assert "is no adapter" in capsys.readouterr().err


def test_fine_tuning_with_dropout_repeats_and_resumes_to_the_same_bits(run: Any, document: Any, tmp_path: Path) -> None:
    sft = {
        "kind": "sft", "policy": {"checkpoint": "base", "lora": {"rank": 4, "dropout": 0.3}},
        "task": document()["task"], "sampling": {"max_new_tokens": 4}, "sft": {"rows": 64, "batch_size": 8},
        "budget": {"iterations": 6}, "checkpoints": {"every": 3}, "optimizer": {"learning_rate": 0.01},
        "evaluation": {"every": 0, "problems": 0, "final_problems": 0},
    }  # fmt: skip
    assert run(sft, tmp_path / "whole") == ExitCode.FINISHED, story_of(tmp_path / "whole").last_message
    asked = iter(range(100))
    code = run(sft, tmp_path / "parts", stop=lambda: next(asked) >= 4)
    assert code == ExitCode.STOPPED
    assert run(sft, tmp_path / "parts", resume=True) == ExitCode.FINISHED
    assert story_of(tmp_path / "parts").checkpoints[6] == story_of(tmp_path / "whole").checkpoints[6]
    still = {**sft, "policy": {"checkpoint": "base", "lora": {"rank": 4}}}
    assert run(still, tmp_path / "still") == ExitCode.FINISHED
    assert story_of(tmp_path / "still").checkpoints[6] != story_of(tmp_path / "whole").checkpoints[6]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"policy": {"architecture": {}, "lora": {"rank": 4}}}, "adapters are trained on a checkpoint"),
        ({"policy": {"checkpoint": "base", "lora": {"rank": 4, "dropout": 0.1}}}, "policy.lora.dropout is 0.1"),
        ({"policy": {"checkpoint": "base", "lora": {"rank": 4, "targets": ["lm_head"]}}}, "policy.lora.targets.0"),
        ({"policy": {"checkpoint": "base", "lora": {"rank": 0}}}, "policy.lora.rank"),
        ({"kind": "evaluate", "policy": {"checkpoint": "base", "lora": {"rank": 4}}}, "an evaluation trains nothing"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], text: str) -> None:
    from trainer.contract.config import InvalidConfig
    from trainer.methods import resolve

    with pytest.raises(InvalidConfig, match=text):
        resolve({"kind": "rl", **changes})
