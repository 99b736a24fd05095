"""A base policy that has learnt the answer format of a small task, and runs inside the test's process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.contract.exit_codes import ExitCode
from trainer.loop.run import Attempt, next_attempt, run_attempt

ARCHITECTURE = {"hidden_size": 32, "layers": 2, "heads": 4, "kv_heads": 2, "intermediate_size": 64, "max_positions": 32}
TASK = {"name": "mod_chain", "problems": 24}
Runner = Callable[..., ExitCode]


@pytest.fixture(autouse=True)
def _restore_torch() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage root whose ``base`` is a policy that answers in the right format, right about as often as chance."""
    files = tmp_path_factory.mktemp("files")
    document = {
        "kind": "sft", "policy": {"architecture": ARCHITECTURE}, "task": TASK, "sampling": {"max_new_tokens": 4},
        "sft": {"rows": 400, "batch_size": 32}, "budget": {"iterations": 60},
        "optimizer": {"learning_rate": 0.01, "warmup_steps": 5},
        "evaluation": {"every": 0, "problems": 5, "samples": 2, "final_problems": 0}, "checkpoints": {"every": 0},
    }  # fmt: skip
    attempt = Attempt(run=files / "sft", number=1, files=files, resume=False, stop=lambda: False)
    assert run_attempt(document, attempt) == ExitCode.FINISHED
    (files / "base").symlink_to(files / "sft/attempts/1/checkpoints/it-00000060/policies/policy")
    return files


@pytest.fixture
def run(base: Path) -> Runner:
    """``run(document, folder, resume=…, stop=…, echo=…)`` → exit code of one attempt."""

    def start(document: Any, folder: Path, **options: Any) -> ExitCode:
        options = {"resume": False, "stop": lambda: False, **options}
        return run_attempt(document, Attempt(run=folder, number=next_attempt(folder), files=base, **options))

    return start


def rl(**changes: Any) -> dict[str, Any]:
    """A small RL document; ``changes`` replace whole sections."""
    return {
        "kind": "rl", "policy": {"checkpoint": "base"}, "task": TASK, "sampling": {"max_new_tokens": 4},
        "algorithm": {"prompts_per_iteration": 4, "num_generations": 4}, "optimizer": {"learning_rate": 0.003},
        "budget": {"iterations": 7}, "checkpoints": {"every": 2, "keep": 2},
        "evaluation": {"every": 3, "problems": 5, "samples": 4, "final_problems": 4, "final_samples": 4}, **changes,
    }  # fmt: skip


@pytest.fixture(scope="session")
def document() -> Callable[..., dict[str, Any]]:
    return rl
