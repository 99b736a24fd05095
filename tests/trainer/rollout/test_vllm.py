"""vLLM alone: whole runs on it, and that no sample of other weights comes back."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.contract import events as ev
from trainer.contract.exit_codes import ExitCode
from trainer.core.errors import SamplerError
from trainer.loop.run import Attempt, next_attempt, run_attempt
from trainer.rollout.sampler import Request, SamplingParams, StreamKey
from trainer.testing.replay import events_of, story_of
from trainer.testing.tiny import tiny_policy

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None,
        reason="vLLM is not installed: pip install --no-deps -r requirements-vllm.txt",
    ),
]
ARCHITECTURE = {"hidden_size": 64, "layers": 2, "heads": 2, "kv_heads": 1, "intermediate_size": 64, "max_positions": 64}
TASK = {"name": "mod_chain", "problems": 24}
NOTHING = {"every": 0, "problems": 0, "final_problems": 0}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage root whose ``base`` answers in the right format."""
    root = tmp_path_factory.mktemp("files")
    document = {
        "kind": "sft", "policy": {"architecture": ARCHITECTURE}, "task": TASK, "sampling": {"max_new_tokens": 4},
        "sft": {"rows": 400, "batch_size": 32}, "budget": {"iterations": 40}, "evaluation": NOTHING,
        "optimizer": {"learning_rate": 0.01, "warmup_steps": 5}, "checkpoints": {"every": 0},
    }  # fmt: skip
    assert start(document, root / "sft", root) == ExitCode.FINISHED
    (root / "base").symlink_to(root / "sft/attempts/1/checkpoints/it-00000040/policies/policy")
    return root


def start(document: dict[str, Any], run: Path, files: Path, **options: Any) -> ExitCode:
    options = {"resume": False, "stop": lambda: False, **options}
    return run_attempt(document, Attempt(run=run, number=next_attempt(run), files=files, **options))


def grpo(engine: str, **changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = {
        "kind": "rl", "policy": {"checkpoint": "base"}, "task": TASK, "sampling": {"max_new_tokens": 4},
        "rollout": {"engine": engine}, "optimizer": {"learning_rate": 0.003},
        "algorithm": {"prompts_per_iteration": 4, "num_generations": 4, "measure_kl": False, "mismatch": "off"},
        "budget": {"iterations": 3}, "checkpoints": {"every": 1},
        "evaluation": {"every": 0, "problems": 4, "samples": 4, "final_problems": 0},
    }  # fmt: skip
    return {**document, **{name: {**document[name], **section} for name, section in changes.items()}}


ALIKE: dict[str, dict[str, Any]] = {
    "all weights": {},
    "lora": {"policy": {"lora": {"rank": 4}}, "optimizer": {"learning_rate": 0.02}},
    "truncated, with stop strings": {"sampling": {"top_k": 6, "top_p": 0.9, "stop": ["3", "4"]}},
}


@pytest.mark.parametrize("name", ALIKE)
def test_three_steps_of_grpo_have_no_gap_and_are_those_of_the_torch_sampler(
    name: str, files: Path, tmp_path: Path
) -> None:
    for engine in ("vllm", "torch"):
        assert start(grpo(engine, **ALIKE[name]), tmp_path / engine, files) == ExitCode.FINISHED, story_of(
            tmp_path / engine
        ).last_message
    ours, reference = story_of(tmp_path / "vllm"), story_of(tmp_path / "torch")
    for iteration in (1, 2, 3):
        assert ours.scalars[iteration, "sampling/sampling_logp_difference/max"] <= 1e-5
        assert abs(ours.scalars[iteration, "sampling/kl/k1"] or 0) <= 1e-5
        assert 0 <= (ours.scalars[iteration, "sampling/kl/k3"] or 0) <= 1e-9
        assert ours.scalars[iteration, "sampling/effective_sample_size"] == pytest.approx(1, abs=1e-9)
        for key in ("reward", "completions/mean_length", "loss", "grad_norm", "entropy"):
            assert ours.scalars[iteration, key] == pytest.approx(reference.scalars[iteration, key], abs=1e-4)
    assert ours.evaluations == reference.evaluations
    assert len(set(ours.checkpoints.values())) == 3
    (evaluation,) = [e.event for e in events_of(tmp_path / "vllm") if isinstance(e.event, ev.Evaluation)][:1]
    assert "vllm" in evaluation.engine


def test_left_to_itself_the_sampler_correction_on_vllm_is_trls(files: Path, tmp_path: Path) -> None:
    auto = grpo("vllm", algorithm={"mismatch": "auto"}, budget={"iterations": 1})
    assert start(auto, tmp_path / "auto", files) == ExitCode.FINISHED
    assert story_of(tmp_path / "auto").scalars[1, "sampling/importance_sampling_ratio/mean"] == pytest.approx(
        1, abs=1e-4
    )
    told = [e.event.message for e in events_of(tmp_path / "auto") if isinstance(e.event, ev.Log)]
    assert [text for text in told if "sampler correction: sequence_mask, because vLLM" in text]


def test_a_stopped_run_on_vllm_resumes_to_the_weights_of_one_left_alone(files: Path, tmp_path: Path) -> None:
    assert start(grpo("vllm"), tmp_path / "whole", files) == ExitCode.FINISHED
    seen = 0

    def stop() -> bool:
        return seen > 0

    def echo(event: Any) -> None:
        nonlocal seen
        seen += isinstance(event, ev.Scalars)

    assert start(grpo("vllm"), tmp_path / "parts", files, stop=stop, echo=echo) == ExitCode.STOPPED
    assert start(grpo("vllm"), tmp_path / "parts", files, resume=True) == ExitCode.FINISHED
    whole, parts = story_of(tmp_path / "whole"), story_of(tmp_path / "parts")
    assert parts.checkpoints[3] == whole.checkpoints[3]
    assert parts.scalars == whole.scalars


@pytest.fixture(scope="module")
def sampler() -> Iterator[Any]:
    from trainer.rollout.vllm_sampler import VllmSampler

    policy = tiny_policy(hidden_size=64, heads=2, kv_heads=1, scale=6.0)
    made = VllmSampler(policy.model, tokenizer=policy.tokenizer, max_rows=4)
    yield made
    made.close()


PARAMS = SamplingParams(temperature=1.0, max_new_tokens=6, eos_ids=(2,))
REQUEST = Request("a", (1, 5, 6, 7), 6)
STREAM = StreamKey(seed=1, iteration=0)


def test_weights_are_handed_over_once_a_change(sampler: Any) -> None:
    for _ in range(2):
        sampler.generate([REQUEST], PARAMS, STREAM)
    version = sampler.weights_version
    sampler.generate([REQUEST], PARAMS, STREAM)
    assert sampler.weights_version == version
    with torch.no_grad():
        sampler.model.model.norm.weight.mul_(1.01)
    sampler.generate([REQUEST], PARAMS, STREAM)
    assert sampler.weights_version == version + 1


def test_a_sample_of_other_weights_is_an_error(sampler: Any) -> None:
    sampler.generate([REQUEST], PARAMS, STREAM)

    def relabel(finished: int, total: int) -> None:
        sampler._llm.llm_engine.set_weight_version("another")

    with pytest.raises(SamplerError, match=r"weights of version .*another"):
        sampler.generate([REQUEST], PARAMS, STREAM, on_progress=relabel)
    sampler.refresh()
    assert len(sampler.generate([REQUEST], PARAMS, STREAM)[0]) == 6


def test_weights_that_change_while_sampling_are_an_error(sampler: Any) -> None:
    def train(finished: int, total: int) -> None:
        with torch.no_grad():
            sampler.model.model.norm.weight.mul_(1.01)

    with pytest.raises(SamplerError, match="changed while vLLM was sampling"):
        sampler.generate([REQUEST], PARAMS, STREAM, on_progress=train)
    assert len(sampler.generate([REQUEST], PARAMS, STREAM)[0]) == 6


def test_a_closed_sampler_starts_again(sampler: Any) -> None:
    before = sampler.generate([REQUEST], PARAMS, STREAM)
    sampler.close()
    assert sampler.generate([REQUEST], PARAMS, STREAM) == before
