"""Launch documents of small real runs, a tenth of a second an iteration at the most."""

from __future__ import annotations

from typing import Any

TASK = {"name": "mod_chain", "params": {"terms": 2, "modulus": 5}, "problems": 40}
ARCHITECTURE = {
    "hidden_size": 32, "layers": 1, "heads": 2, "kv_heads": 2, "intermediate_size": 32, "max_positions": 32
}  # fmt: skip
SPS = [{"slug": "sps", "params": {"k_rl": 3, "k_irl": 2, "prompts": "all"}}]


def rl(**changes: Any) -> dict[str, Any]:
    """Fresh weights seldom find an answer: the entropy bonus moves them in every iteration all the same."""
    return {
        "kind": "rl",
        "policy": {"architecture": ARCHITECTURE},
        "task": TASK,
        "sampling": {"max_new_tokens": 3},
        "algorithm": {"prompts_per_iteration": 4, "num_generations": 4, "entropy_coef": 0.01, "kl_coef": 0.01},
        "optimizer": {"learning_rate": 0.003},
        "evaluation": {"every": 6, "problems": 8, "samples": 4, "final_problems": 8, "final_samples": 4},
        "budget": {"iterations": 18},
        "checkpoints": {"every": 4},
        **changes,
    }


def sft(**changes: Any) -> dict[str, Any]:
    """Fine-tuning on the same task."""
    return {
        "kind": "sft",
        "policy": {"architecture": ARCHITECTURE},
        "task": TASK,
        "sampling": {"max_new_tokens": 3},
        "sft": {"rows": 100, "batch_size": 16, "log_every": 1},
        "evaluation": {"every": 6, "problems": 8, "samples": 4, "final_problems": 8, "final_samples": 4},
        "budget": {"iterations": 40},
        "checkpoints": {"every": 4},
        **changes,
    }
