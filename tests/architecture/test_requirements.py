"""The lists of packages say the same where they speak of the same."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OWN_OF_VLLM = frozenset({"torch", "transformers", "tokenizers", "numpy"})
"""What vLLM's own requirements pin."""


def packages(name: str, *, until: str = "# Tests and checks") -> dict[str, set[str]]:
    """Package → its lines (one for each Python), as far as the heading."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / name).read_text().split(until)[0].splitlines():
        if line and not line.startswith("#"):
            found.setdefault(line.split("=")[0].rstrip("<>").split("[")[0].lower(), set()).add(line)
    return found


def test_a_gpu_host_has_everything_of_the_base_set() -> None:
    base = packages("requirements.txt")
    assert {k: v for k, v in packages("requirements-gpu.txt").items() if k != "vllm"} == {
        k: v for k, v in base.items() if k not in OWN_OF_VLLM
    }


@pytest.mark.parametrize(
    "package", ["torch", "transformers", "tokenizers", "safetensors", "peft", "pydantic", "pyarrow"]
)
def test_the_trainer_beside_vllm_on_a_cpu_has_the_versions_of_the_base_set(package: str) -> None:
    assert packages("requirements-vllm.txt")[package] == packages("requirements.txt")[package]
