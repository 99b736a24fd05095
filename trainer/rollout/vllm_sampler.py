"""Sampling with vLLM, in this process, from the live policy's weights.

vLLM runs the model: paged cache, continuous batching, its kernels. Which token follows is decided by the package's own
code (``trainer.rollout.vllm_choice``): the same distribution, the same log-probabilities and the same counter-based
numbers as the torch sampler's. So a sample's numbers depend on its coordinates and token position only, samples can be
continued from any prefix, and where two engines compute equal logits they draw equal tokens.

What determinism holds: with one installation on one host, equal weights, requests and stream give equal tokens when they
are asked for in one call of the same make-up. In another mix of requests logits may differ by rounding, as kernels sum
in another order, and a token on the edge may fall to the other side; in fp32 on a CPU that is rare, in bf16 it is not.

Weights are handed over in place whenever a parameter changed, with the prefix cache emptied, and carry a version: a
sample that was drawn from another version than the call's is an error, never a result.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from trainer.core.errors import ConfigError, SamplerError
from trainer.policy.adapters import version_of
from trainer.rollout.engines import vllm_version
from trainer.rollout.rows import Row, Watch, rows_of
from trainer.rollout.sampler import (
    Completion,
    Progress,
    Request,
    SamplingParams,
    StreamKey,
    check_requests,
)
from trainer.rollout.stops import StopStrings

log = logging.getLogger(__name__)

ENGINE_VERSION = 1
"""Another number wherever a change of this class may draw other tokens from the same seed."""
_CACHE_BYTES_CPU = 1 << 30
_ENVIRONMENT = {
    # One process: weights are handed over as tensors, and scheduling is deterministic.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # The newer model runner has no logits processors.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


class VllmSampler:
    """Samples from ``model`` (see ``trainer.rollout.sampler.Sampler``), on the GPU where there is one, in ``dtype`` or that
    of the model's weights.

    Stop strings need the ``tokenizer``. ``gpu_memory`` is the share of the GPU's memory for vLLM's copy of the weights
    and its cache; ``max_rows`` the most samples decoded together. vLLM starts with the first call. Raises ConfigError for
    a model that vLLM cannot run, or not as it is here.
    """

    def __init__(
        self,
        model: Any,
        *,
        tokenizer: PreTrainedTokenizerBase | None = None,
        gpu_memory: float = 0.3,
        max_rows: int = 256,
        dtype: torch.dtype | None = None,
    ) -> None:
        reason = why_not_vllm(model)
        if reason:
            raise ConfigError(f"rollout.engine: vLLM cannot sample from this policy: {reason}; set it to torch")
        self.model = model
        self.tokenizer = tokenizer
        self._dtype = str(dtype or model.dtype).removeprefix("torch.")
        self.weights_version = 0
        """How often weights were handed over."""
        self._gpu_memory, self._max_rows = gpu_memory, max_rows
        self._llm: Any = None
        self._handed_over: tuple[Any, ...] | None = None

    @property
    def engine(self) -> str:
        """vLLM's and torch's version, the dtype, and the processor."""
        gpu = torch.cuda.is_available()
        where = torch.cuda.get_device_name() if gpu else platform.machine()
        return (
            f"vllm-sampler {ENGINE_VERSION}, vllm {vllm_version()}, torch {torch.__version__}, {self._dtype}, {where}"
        )

    @property
    def capabilities(self) -> frozenset[str]:
        """See the names. No ``any_head``: vLLM runs the architecture's own layers only."""
        kinds = {"greedy", "top_k", "top_p", "min_p", "stop", "prefix", "counter_rng", "exact_logprobs"}
        return frozenset({"vllm", *kinds})

    def refresh(self) -> None:
        """Hand the weights over anew at the next call."""
        self._handed_over = None

    def generate(
        self,
        requests: Sequence[Request],
        params: SamplingParams,
        stream: StreamKey,
        *,
        on_progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> list[list[Completion]]:
        """See the protocol."""
        limit = getattr(self.model.config, "max_position_embeddings", None)
        check_requests(requests, params, vocab_size=self.model.config.vocab_size, max_positions=limit)
        rows = [rows_of(request, params, stream) for request in requests]
        flat = [row for group in rows for row in group]
        if flat:
            watch, stops = Watch(len(flat), on_progress, should_stop), StopStrings(params.stop, self.tokenizer)
            with _undisturbed():
                self._prepare(max(len(row.context) + row.limit for row in flat))
                self._draw(flat, params, stops, watch)
        return [[row.completion(params.eos_ids) for row in group] for group in rows]

    def close(self) -> None:
        """End vLLM and give its memory back; a later call starts it anew."""
        if self._llm is not None:
            with _undisturbed():
                self._llm.llm_engine.engine_core.shutdown()
        self._llm = self._handed_over = None

    def _prepare(self, longest: int) -> None:
        """Start vLLM, hand over changed weights, and forget the cache of earlier calls."""
        if self._llm is None:
            self._llm = _start(self.model, self._dtype, self._gpu_memory, self._max_rows)
        limit = self._llm.llm_engine.model_config.max_model_len
        if longest > limit:
            raise SamplerError(
                f"a context with max_new_tokens has {longest} tokens, but vLLM's cache holds {limit}; raise "
                "rollout.gpu_memory, or lower sampling.max_new_tokens"
            )
        versions = version_of(self.model)
        if versions != self._handed_over:
            self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": named_weights(self.model)})
            self.weights_version += 1
            self._llm.llm_engine.set_weight_version(str(self.weights_version))
            self._handed_over = versions
        # Also between calls with equal weights: what was cached before must not decide how a sum is rounded.
        if not self._llm.reset_prefix_cache():
            raise SamplerError("vLLM kept its prefix cache: an earlier call's samples are still running")

    def _draw(self, rows: list[Row], params: SamplingParams, stops: StopStrings, watch: Watch) -> None:
        engine = self._llm.llm_engine
        running: dict[str, Row] = {}
        try:
            for number, row in enumerate(rows):
                name = f"{self.weights_version}-{number}"
                engine.add_request(name, {"prompt_token_ids": list(row.context)}, _engine_params(row, params, stops))
                running[name] = row
            while running:
                watch.check()
                for output in engine.step():
                    self._take(output, running, params, stops, watch)
        finally:
            if running:
                engine.abort_request(list(running))
        if version_of(self.model) != self._handed_over:
            raise SamplerError("the weights changed while vLLM was sampling; the samples belong to no policy")

    def _take(
        self, output: Any, running: dict[str, Row], params: SamplingParams, stops: StopStrings, watch: Watch
    ) -> None:
        """Add an output's new tokens to its row; end the request where a stop string is complete."""
        row = running.get(output.request_id)
        if row is None:
            return
        (part,) = output.outputs
        for token, logprob in zip(part.token_ids, part.logprobs.logprobs, strict=True):
            if not row.ended:
                row.add(int(token), float(logprob), params, stops)
        versions = {span.version for span in part.weight_versions or ()}
        if versions - {str(self.weights_version)}:
            raise SamplerError(
                f"vLLM drew with weights of version {sorted(versions)}, expected {self.weights_version} only"
            )
        if row.ended or output.finished:
            if not row.ended:
                raise SamplerError(f"vLLM ended a sample after {len(row.ids)} tokens: {part.finish_reason}")
            if not output.finished:
                self._llm.llm_engine.abort_request([output.request_id])
            del running[output.request_id]
            watch.done(1)


def why_not_vllm(model: Any) -> str | None:
    """Why vLLM's forward would not be this model's; None where it is."""
    for name, module in model.named_modules():
        if module._forward_hooks or module._forward_pre_hooks:
            return f"{name or 'the model'} has a forward hook"
    if not torch.cuda.is_available():
        config = model.config
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        if size not in _CPU_HEAD_SIZES:
            return f"its attention heads have size {size}; on a CPU vLLM has {', '.join(map(str, _CPU_HEAD_SIZES))}"
    return None


_CPU_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)


def _engine_params(row: Row, params: SamplingParams, stops: StopStrings) -> Any:
    from vllm import SamplingParams as EngineParams
    from vllm.sampling_params import RequestOutputKind

    from trainer.rollout.vllm_choice import extra_args

    return EngineParams(
        temperature=0.0,
        max_tokens=row.limit,
        stop_token_ids=list(params.eos_ids),
        ignore_eos=True,
        logprobs=0,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA if stops else RequestOutputKind.FINAL_ONLY,
        extra_args=extra_args(row.key, row.first_position, params),
    )


def named_weights(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights under the names of the transformers layout, which vLLM's loaders read; a LoRA of peft is added to the
    weight beside which it stands, as far as it is switched on."""
    for name, tensor in model.state_dict().items():
        if ".lora_" in name:
            continue
        owner, _, kind = name.rpartition(".")
        if owner.endswith(".base_layer"):
            layer = model.get_submodule(owner.removesuffix(".base_layer"))
            name = f"{owner.removesuffix('.base_layer')}.{kind}"
            if kind == "weight" and not (layer.disable_adapters or layer.merged):
                for adapter in layer.active_adapters:
                    tensor = tensor + layer.get_delta_weight(adapter)
        yield name, tensor.detach()


def _start(model: Any, dtype: str, gpu_memory: float, max_rows: int) -> Any:
    """A vLLM engine of the model's architecture whose weights are still to come."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from vllm import LLM

    from trainer.rollout.vllm_choice import CounterChoice

    # It tries a chat template at its start, without a tokenizer here, and logs that with a traceback.
    logging.getLogger("vllm.renderers.base").setLevel(logging.CRITICAL)
    gpu = torch.cuda.is_available()
    room: dict[str, Any] = (
        {"gpu_memory_utilization": gpu_memory}
        if gpu
        else {"kv_cache_memory_bytes": _CACHE_BYTES_CPU, "enforce_eager": True}
    )
    with tempfile.TemporaryDirectory(prefix="unsqueeze-vllm-") as folder:
        config = type(model.config).from_dict(model.config.to_dict())
        config.architectures = [type(model).__name__]
        config.save_pretrained(folder)
        return LLM(
            model=folder,
            load_format="dummy",
            skip_tokenizer_init=True,
            generation_config="vllm",
            dtype=dtype,
            max_model_len=-1,
            max_num_seqs=max_rows,
            logprobs_mode="processed_logits",
            logits_processors=[CounterChoice],
            async_scheduling=False,
            enable_prefix_caching=True,
            disable_log_stats=True,
            seed=0,
            **room,
        )


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Leaves the process's random generators, threads and torch settings as they were; inside, vLLM's are in force."""
    import numpy

    cuda = torch.cuda.is_initialized()
    python, array, cpu = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if cuda else []
    threads, set_threads = torch.get_num_threads(), torch.set_num_threads
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        with torch._dynamo.config.patch(disable=not torch.cuda.is_available()):
            yield
    finally:
        torch.use_deterministic_algorithms(deterministic)
        torch.set_num_threads = set_threads
        torch.set_num_threads(threads)
        random.setstate(python)
        numpy.random.set_state(array)
        torch.set_rng_state(cpu)
        if devices:
            torch.cuda.set_rng_state_all(devices)
