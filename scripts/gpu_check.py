"""The measurements of scripts/gpu_check.sh, each in a section of its own: one that fails leaves the others standing.

After every section the whole of what is known is written to FOLDER/gpu_check.json, so that a time limit loses one
section only. Weights are random: speeds, memory and the gap between engines do not depend on what the model knows.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from trainer.diagnostics.gap import Gap
from trainer.policy.scoring import score
from trainer.rollout.engines import vllm_version
from trainer.rollout.sampler import Completion, Request, Sampler, SamplingParams, StreamKey
from trainer.rollout.torch_sampler import TorchSampler

LORA_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclass(frozen=True)
class Size:
    """The model and the work. ``samples`` a prompt; ``rows`` sequences in a forward pass; ``steps`` measured."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    mlp: int
    vocabulary: int
    prompts: int
    samples: int
    prompt_tokens: int
    new_tokens: int
    rows: int
    steps: int
    dtype: str

    @property
    def sequences(self) -> int:
        return self.prompts * self.samples


LARGE = Size(896, 24, 14, 2, 4864, 151936, 16, 16, 256, 256, 32, 3, "bfloat16")
TINY = Size(64, 2, 2, 1, 96, 128, 2, 3, 12, 8, 3, 1, "float32")
"""fp32: vLLM's and transformers' bf16 on a CPU round in other places."""


class Check:
    """The sections' common ground: device, model, and the samples that training uses."""

    def __init__(self, size: Size, device: str) -> None:
        self.size, self.device = size, device
        torch.manual_seed(0)
        config = Qwen2Config(
            hidden_size=size.hidden, num_hidden_layers=size.layers, num_attention_heads=size.heads,
            num_key_value_heads=size.kv_heads, intermediate_size=size.mlp, vocab_size=size.vocabulary,
            max_position_embeddings=size.prompt_tokens + size.new_tokens, tie_word_embeddings=True,
        )  # fmt: skip
        self.model: Any = Qwen2ForCausalLM(config).to(device=device, dtype=getattr(torch, size.dtype)).eval()
        generator = torch.Generator().manual_seed(1)
        draws = torch.randint(size.vocabulary, (size.prompts, size.prompt_tokens), generator=generator).tolist()
        self.requests = [Request(f"p{i}", tuple(ids), size.samples) for i, ids in enumerate(draws)]
        self.params = SamplingParams(temperature=1.0, max_new_tokens=size.new_tokens)

    def host(self) -> dict[str, Any]:
        """What is here, and how fast a matrix product is."""
        n = 512 if self.device == "cpu" else 8192
        a = torch.randn(n, n, device=self.device, dtype=self.model.dtype)
        a @ a
        seconds = self.timed(lambda: [a @ a for _ in range(5)])
        gpu = torch.cuda.get_device_name() if self.device != "cpu" else None
        return {
            "python": platform.python_version(), "torch": torch.__version__, "vllm": vllm_version(), "gpu": gpu,
            "parameters": sum(p.numel() for p in self.model.parameters()), "matmul_tflops": 5 * 2 * n**3 / seconds / 1e12,
        }  # fmt: skip

    def torch_rollout(self) -> dict[str, Any]:
        """Sampling by the torch sampler."""
        return self._rollout(TorchSampler(self.model))

    def vllm_rollout(self) -> dict[str, Any]:
        """Sampling by vLLM, its start, and a hand-over of changed weights."""
        if vllm_version() is None:
            return {"skipped": "vLLM is not installed"}
        from trainer.rollout.vllm_sampler import VllmSampler

        sampler = VllmSampler(self.model, max_rows=self.size.sequences)
        started = self.timed(
            lambda: sampler.generate(self.requests[:1], SamplingParams(1.0, max_new_tokens=1), stream(0))
        )
        found = self._rollout(sampler)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.mul_(1.02)
        sampler.refresh()
        one = SamplingParams(1.0, max_new_tokens=1)
        handed_over = self.timed(lambda: sampler.generate(self.requests[:1], one, stream(0)))
        after = self.gap(sampler.generate(self.requests[:1], self.params, stream(2)), self.requests[:1])
        sampler.close()
        return {**found, "start_s": started, "hand_over_s": handed_over, "after_update": after}

    def _rollout(self, sampler: Sampler) -> dict[str, Any]:
        short = SamplingParams(temperature=1.0, max_new_tokens=min(8, self.size.new_tokens))
        sampler.generate(self.requests, short, stream(0))
        self.forget_peak()
        drawn: list[list[list[Completion]]] = []
        seconds = self.timed(lambda: drawn.append(sampler.generate(self.requests, self.params, stream(1))))
        tokens = sum(len(c.ids) for group in drawn[0] for c in group)
        peak = self.peak()
        return {"engine": sampler.engine, "seconds": seconds, "tokens": tokens, "tokens_per_s": tokens / seconds,
                "peak_gib": peak, "gap": self.gap(drawn[0], self.requests)}  # fmt: skip

    def gap(self, groups: list[list[Completion]], requests: list[Request]) -> dict[str, float]:
        """The sampler's log-probs against the trainer's forward."""
        found = Gap()
        with torch.no_grad():
            for request, group in zip(requests, groups, strict=True):
                ids = torch.tensor([c.ids for c in group], device=self.device)
                sampled = torch.tensor([c.logprobs for c in group], device=self.device)
                found.add(self.logprobs([request] * len(group), ids), sampled)
        return found.metrics()

    def logprobs(self, requests: list[Request], ids_NT: torch.Tensor) -> torch.Tensor:
        """The trainer's log-probs (N, T) of completions after their requests' prompts."""
        prompts = torch.tensor([r.prompt_ids for r in requests], device=self.device)
        whole = [torch.full((len(requests),), x.shape[1], device=self.device) for x in (prompts, ids_NT)]
        return score(self.model, prompts, whole[0], ids_NT, whole[1], temperature=1.0, entropy=False).logprobs_NT

    def full_training(self) -> dict[str, Any]:
        """Policy-gradient steps on all weights."""
        return self._training(list(self.model.parameters()))

    def lora_training(self) -> dict[str, Any]:
        """The same with adapters of rank 16 on every projection, by peft."""
        try:
            from peft import LoraConfig, inject_adapter_in_model
        except ImportError:
            return {"skipped": "peft is not installed"}
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
        inject_adapter_in_model(LoraConfig(r=16, lora_alpha=32, target_modules=LORA_TARGETS), self.model)
        return self._training([p for p in self.model.parameters() if p.requires_grad])

    def _training(self, parameters: list[torch.nn.Parameter]) -> dict[str, Any]:
        size = self.size
        optimizer = torch.optim.AdamW(parameters, lr=1e-6)
        generator = torch.Generator().manual_seed(2)
        shape = (size.sequences, size.new_tokens)
        ids = torch.randint(size.vocabulary, shape, generator=generator).to(self.device)
        owners = [r for r in self.requests for _ in range(r.n)]
        advantage = torch.tensor([1.0, -1.0], device=self.device).repeat(size.sequences)[: size.sequences]
        self.forget_peak()
        split = {"forward": 0.0, "backward": 0.0, "optimizer": 0.0}
        losses: list[torch.Tensor] = []

        def forward(rows: slice) -> None:
            losses.append(-(self.logprobs(owners[rows], ids[rows]) * advantage[rows, None]).sum() / ids.numel())

        for step in range(size.steps + 1):
            for at in range(0, size.sequences, size.rows):
                rows = slice(at, at + size.rows)
                split["forward"] += self.timed(lambda rows=rows: forward(rows))
                split["backward"] += self.timed(lambda: losses.pop().backward())
            split["optimizer"] += self.timed(optimizer.step)
            optimizer.zero_grad(set_to_none=True)
            if step == 0:
                split = dict.fromkeys(split, 0.0)
        seconds = {name: value / size.steps for name, value in split.items()}
        total = sum(seconds.values())
        trained = sum(p.numel() for p in parameters)
        return {"trained_parameters": trained, "step_s": total, "split_s": seconds, "peak_gib": self.peak(),
                "completion_tokens_per_s": ids.numel() / total}  # fmt: skip

    def timed(self, work: Callable[[], Any]) -> float:
        """Wall seconds, the device's queue emptied before and after."""
        self._wait()
        began = time.perf_counter()
        work()
        self._wait()
        return time.perf_counter() - began

    def _wait(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize()

    def forget_peak(self) -> None:
        if self.device != "cpu":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def peak(self) -> float | None:
        """GiB at most since ``forget_peak``; None on a CPU."""
        return torch.cuda.max_memory_allocated() / 2**30 if self.device != "cpu" else None


def stream(iteration: int) -> StreamKey:
    return StreamKey(seed=0, iteration=iteration)


def main() -> int:
    """Runs all sections; 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="a small model on the CPU")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if not (arguments.tiny or torch.cuda.is_available()):
        print("found no GPU that torch can use; --tiny runs the check on the CPU", file=sys.stderr)
        return 2
    arguments.out.mkdir(parents=True, exist_ok=True)
    size = TINY if arguments.tiny else LARGE
    check = Check(size, "cpu" if arguments.tiny else "cuda")
    found: dict[str, Any] = {"size": asdict(size)}
    sections = (check.host, check.full_training, check.torch_rollout, check.vllm_rollout, check.lora_training)
    for section in sections:
        name, began = section.__name__, time.perf_counter()
        try:
            found[name] = section()
        except Exception as error:
            traceback.print_exc()
            found[name] = {"error": f"{type(error).__name__}: {error}"}
        found[name]["section_s"] = time.perf_counter() - began
        (arguments.out / "gpu_check.json").write_text(json.dumps(found, indent=1))
        print(name, json.dumps(found[name]), flush=True)
    return int(any("error" in part for part in found.values()))


if __name__ == "__main__":
    sys.exit(main())
