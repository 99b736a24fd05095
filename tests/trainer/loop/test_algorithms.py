"""Every algorithm: two runs give the same bits, and a run that goes on from any iteration gives them too."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from trainer.contract.exit_codes import ExitCode
from trainer.contract.presets import PRESETS
from trainer.loop.run import Attempt, run_attempt
from trainer.testing.replay import Story, story_of

ITERATIONS = 3
SPS = [{"slug": "sps", "params": {"k_rl": 1, "prompts": "all"}}]
TWICE = {"num_iterations": 2, "minibatches": 2, "microbatch_tokens": 64}
"""Two epochs of two mini-batches, each in many micro-batches."""
EXTRAS: dict[str, dict[str, Any]] = {
    "adaptive kl in the loss": {"kl_coef": 0.1, "kl_target": 0.01, "kl_horizon": 20, "kl_estimator": "k3+", "kl_ratio": True},
    "adaptive kl in the reward": {
        "preset": "reinforce-pp", "kl_coef": 0.1, "kl_target": 0.01, "kl_horizon": 20, "kl_estimator": "k1"
    },
    "adaptive entropy": {"entropy_target": 1.0, "entropy_coef": 0.01, "top_entropy": 0.5},
    "sampler correction": {"mismatch": "sequence_mask", "mismatch_min": 0.5, "off_policy_kl": 0.1},
    "overlong": {"preset": "dapo", "overlong_buffer": 2, "mask_truncated": True},
    "dropped groups": {"zero_variance": "drop", "advantage": "batch_zscore"},
    "vespo": {"surrogate": "vespo", "mismatch": "token_truncate"},
    "sapo": {"surrogate": "sapo"},
    "gspo-token": {"preset": "gspo", "ratio": "sequence_token"},
    "ppo with its own rate": {"preset": "ppo", "value_learning_rate": 0.01, "num_generations": 1},
}  # fmt: skip
CASES = {
    **{name: {"algorithm": {"preset": name, **TWICE}} for name in PRESETS},
    **{name: {"algorithm": {**TWICE, **changes}} for name, changes in EXTRAS.items()},
    "one step off": {"algorithm": {"staleness": 1, "mismatch": "token_truncate", "kl_coef": 0.1, **TWICE}},
    "two steps off, refilled": {"algorithm": {"preset": "dapo", "staleness": 2, "mismatch": "sequence_mask"}},
    "truncated sampling": {
        "sampling": {"max_new_tokens": 4, "top_k": 8, "top_p": 0.9, "min_p": 0.01},
        "algorithm": {**TWICE, "kl_coef": 0.1, "entropy_coef": 0.01, "mismatch": "token_truncate"},
    },
    "sps on truncated sampling": {"sampling": {"max_new_tokens": 4, "top_p": 0.8}, "algorithm": {}, "methods": SPS},
    "sps on ppo": {"algorithm": {"preset": "ppo"}, "methods": SPS},
    "sps on dapo": {"algorithm": {"preset": "dapo"}, "methods": SPS},
}


def tensors(run: Path, attempt: int) -> dict[str, Any]:
    """Every tensor of the last checkpoint, optimisers and heads too."""
    folder = run / f"attempts/{attempt}/checkpoints/it-{ITERATIONS:08d}"
    return {
        f"{path.relative_to(folder)}:{name}": value
        for path in sorted(folder.rglob("*.safetensors"))
        for name, value in load_file(path).items()
    }


def same(run: Path, other: Path, attempts: tuple[int, int] = (1, 1)) -> None:
    a, b = story_of(run), story_of(other)
    assert shown(a) == shown(b)
    assert a.rollouts == b.rollouts
    assert a.axes == b.axes
    found, expected = tensors(run, attempts[0]), tensors(other, attempts[1])
    assert found.keys() == expected.keys()
    assert [name for name in found if not bool((found[name] == expected[name]).all())] == []


def shown(story: Story) -> dict[Any, Any]:
    return {key: "nan" if isinstance(v, float) and math.isnan(v) else v for key, v in story.scalars.items()}


@pytest.mark.parametrize("name", CASES)
def test_it_repeats_and_goes_on_from_every_iteration_to_the_same_bits(name, base, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    changes = CASES[name]
    small = {"prompts_per_iteration": 4, "num_generations": 4}
    evaluation = {"every": 2, "problems": 0, "final_problems": 0}
    wanted = document(
        **{**changes, "algorithm": {**small, **changes["algorithm"]}},
        budget={"iterations": ITERATIONS},
        checkpoints={"every": 1, "keep": 9},
        evaluation=evaluation,
    )

    def run(folder: Path, number: int = 1, **options: Any) -> None:
        options = {"resume": False, **options}
        attempt = Attempt(run=folder, number=number, files=base, stop=lambda: False, **options)
        assert run_attempt(wanted, attempt) == ExitCode.FINISHED, story_of(folder).last_message

    run(tmp_path / "first")
    run(tmp_path / "second")
    same(tmp_path / "second", tmp_path / "first")
    trained = story_of(tmp_path / "first")
    assert trained.axes[ITERATIONS]["trained_tokens"] > 0
    for k in range(1, ITERATIONS):
        folder = tmp_path / f"from {k}"
        folder.mkdir()
        (folder / "attempts").mkdir()
        (folder / "attempts/1").symlink_to(tmp_path / "first/attempts/1")
        checkpoint = tmp_path / f"first/attempts/1/checkpoints/it-{k:08d}"
        run(folder, 2, resume=True, checkpoints=(checkpoint,), retain=False)
        same(folder, tmp_path / "first", (2, 1))


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_its_reward_rises_and_its_entropy_falls(preset, run, document, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    wanted = document(
        algorithm={"preset": preset, "prompts_per_iteration": 8, "num_generations": 8},
        budget={"iterations": 40},
        checkpoints={"every": 0},
        evaluation={"every": 0, "problems": 0, "final_problems": 0},
        optimizer={"learning_rate": 0.002},
    )
    assert run(wanted, tmp_path / "r") == ExitCode.FINISHED
    found = story_of(tmp_path / "r").scalars
    right = [found[i, "accuracy/train"] for i in range(1, 41)]
    assert sum(right[-5:]) / 5 > sum(right[:5]) / 5 + 0.02
    assert found[40, "entropy"] < found[1, "entropy"]
