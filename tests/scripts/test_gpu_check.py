"""The prepared check of a GPU host, run small on the CPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_check_measures_every_section_and_writes_it_down(tmp_path: Path) -> None:
    done = subprocess.run(
        ["scripts/gpu_check.sh", "--tiny", str(tmp_path)],
        cwd=ROOT, env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "gpu_check.json").read_text())
    assert found["host"]["parameters"] > 10_000
    engines = ["torch_rollout"] + (["vllm_rollout"] if importlib.util.find_spec("vllm") else [])
    for name in engines:
        assert found[name]["tokens"] == 2 * 3 * 8
        assert found[name]["tokens_per_s"] > 0
        assert found[name]["gap"]["sampling/sampling_logp_difference/max"] <= 1e-5
    parts = ["full_training"] + (["lora_training"] if importlib.util.find_spec("peft") else [])
    for name in parts:
        assert set(found[name]["split_s"]) == {"forward", "backward", "optimizer"}
        assert found[name]["step_s"] == pytest.approx(sum(found[name]["split_s"].values()))
    if len(parts) == 2:
        assert found["lora_training"]["trained_parameters"] < found["full_training"]["trained_parameters"]
