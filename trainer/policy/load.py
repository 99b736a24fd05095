"""Policies in the standard transformers folder layout, or as an adapter beside its base: make, load, save.

Weights are safetensors only; a pickle is never opened. Folders are local; nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from trainer.core.errors import CheckpointError, ConfigError
from trainer.core.types import Message
from trainer.policy import adapters
from trainer.policy.fingerprint import weights_hash

_FAMILIES: dict[str, tuple[type, type]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
}
_ARCHITECTURE_KEYS = (
    "family",
    "hidden_size",
    "layers",
    "heads",
    "kv_heads",
    "intermediate_size",
    "max_positions",
    "tie_embeddings",
)


@dataclass(frozen=True)
class Policy:
    """A causal language model with its tokenizer. ``model`` is live: training changes it in place. ``adapter`` says which
    of the model's adapters the policy is, where it has any. ``dtype`` is the type of its matrix products, whatever that of
    its weights (see `trainer.policy.hardware`)."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    adapter: adapters.Adapter | None = None
    dtype: torch.dtype = torch.float32

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.device

    def computing(self) -> AbstractContextManager[Any]:
        """Inside, matrix products are taken in the policy's type."""
        return nullcontext() if self.dtype == torch.float32 else torch.autocast(self.device.type, dtype=self.dtype)

    @property
    def weights_hash(self) -> str:
        """Identity of all that the policy computes with."""
        return weights_hash(self.model) if self.adapter is None else adapters.adapter_hash(self)

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Every id that ends a sequence, sorted: those of the generation config, the model config and the tokenizer."""
        found: set[int] = set()
        generation = getattr(self.model, "generation_config", None)
        for source in (generation, self.model.config, self.tokenizer):
            value = getattr(source, "eos_token_id", None)
            if value is not None:
                found.update([value] if isinstance(value, int) else value)
        return tuple(sorted(found))

    @property
    def pad_id(self) -> int:
        """An id to fill padding with. It may equal an end-of-sequence id: masks never come from ids."""
        pad = self.tokenizer.pad_token_id
        return pad if pad is not None else (self.eos_ids or (0,))[0]

    @property
    def max_positions(self) -> int | None:
        """Longest sequence (prompt and completion, in tokens) that the model is made for, where it says so."""
        return getattr(self.model.config, "max_position_embeddings", None)

    def encode_prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Ids of a prompt: through the chat template where the tokenizer has one, else the joined contents as raw text
        with the tokenizer's own special tokens (a character tokenizer puts ``<bos>`` in front)."""
        if self.tokenizer.chat_template:
            chat = [{"role": m.role, "content": m.content} for m in messages]
            text = self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
            return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        return tuple(self.tokenizer("".join(m.content for m in messages))["input_ids"])

    def encode_completion(self, text: str) -> tuple[int, ...]:
        """Ids of a completion's text, ended by the tokenizer's end-of-sequence id."""
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        if self.tokenizer.eos_token_id is None:
            raise ConfigError("the tokenizer has no eos_token, expected one to end completions; set eos_token in it")
        return (*ids, self.tokenizer.eos_token_id)

    def decode_completion(self, ids: Sequence[int]) -> str:
        """Text of sampled ids without the one end-of-sequence id that ended them.

        Special tokens in the middle stay visible: a checker must not read ``1<pad>2`` as ``12``.
        """
        body = ids[:-1] if ids and ids[-1] in self.eos_ids else ids
        return str(self.tokenizer.decode(list(body), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def new_policy(architecture: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase, *, seed: int) -> Policy:
    """A randomly initialised fp32 policy, the same weights for the same seed; the global generator is left alone.

    ``architecture`` holds exactly: family (``llama`` | ``qwen2``), hidden_size, layers, heads, kv_heads,
    intermediate_size, max_positions (ints), tie_embeddings (bool).
    """
    _check_architecture(architecture)
    config_class, model_class = _FAMILIES[architecture["family"]]
    config = config_class(
        vocab_size=len(tokenizer),
        hidden_size=architecture["hidden_size"],
        num_hidden_layers=architecture["layers"],
        num_attention_heads=architecture["heads"],
        num_key_value_heads=architecture["kv_heads"],
        intermediate_size=architecture["intermediate_size"],
        max_position_embeddings=architecture["max_positions"],
        tie_word_embeddings=architecture["tie_embeddings"],
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model_class(config)
    return Policy(model.float().eval(), tokenizer)


def _check_architecture(architecture: Mapping[str, Any]) -> None:
    missing = [k for k in _ARCHITECTURE_KEYS if k not in architecture]
    unknown = sorted(set(architecture) - set(_ARCHITECTURE_KEYS))
    if missing or unknown:
        raise ConfigError(f"architecture: missing {missing}, unknown {unknown}; expected {list(_ARCHITECTURE_KEYS)}")
    if architecture["family"] not in _FAMILIES:
        raise ConfigError(f"architecture.family: found {architecture['family']!r}, expected one of {sorted(_FAMILIES)}")
    hidden, heads, kv_heads = (architecture[k] for k in ("hidden_size", "heads", "kv_heads"))
    if hidden % heads or heads % kv_heads or (hidden // heads) % 2:
        raise ConfigError(
            f"architecture: found hidden_size {hidden}, heads {heads}, kv_heads {kv_heads}; expected hidden_size to be "
            "an even multiple of heads and heads a multiple of kv_heads"
        )


def load_policy(folder: str | os.PathLike[str], *, files: Path = Path(".")) -> Policy:
    """The policy in a local folder with config.json, safetensors weights and a tokenizer, or with an adapter, or in a GGUF
    file (or a folder with one); fp32, evaluation mode, on the CPU. ``files`` is the storage root that an adapter's base is
    named relative to.

    Raises CheckpointError where the folder is incomplete, holds only pickled weights, or its weights do not cover
    the model. Code inside the folder is never run.
    """
    path = Path(folder)
    if adapters.is_adapter(path):
        policy = adapters.attach(load_policy(adapters.folder_of_base(path, files), files=files), path)
        if {"tokenizer.json", "tokenizer_config.json"} & {p.name for p in path.iterdir()}:
            tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
            policy = replace(policy, tokenizer=tokenizer)
        policy.model.eval()
        return policy
    gguf = gguf_in(path)
    if gguf is not None:
        model, problems = _from_gguf(gguf)
        tokenizer = AutoTokenizer.from_pretrained(
            gguf.parent, local_files_only=True, trust_remote_code=False, gguf_file=gguf.name
        )
    else:
        _check_folder(path)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path, local_files_only=True, use_safetensors=True, dtype=torch.float32, trust_remote_code=False,
            output_loading_info=True,
        )  # fmt: skip
        model, report = loaded
        kinds = ("missing_keys", "unexpected_keys", "mismatched_keys")
        problems = {k: sorted(map(str, report[k])) for k in kinds if report.get(k)}
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    if problems:
        raise CheckpointError(
            f"{path.name}: weights do not fit config.json: {problems}; expected a complete checkpoint"
        )
    if len(tokenizer) > model.config.vocab_size:
        raise CheckpointError(
            f"{path.name}: the tokenizer has {len(tokenizer)} ids but the model only {model.config.vocab_size}; "
            "expected the tokenizer that the model was trained with"
        )
    # A weights file is mapped at any address, and where one is not a multiple of 64 bytes the CPU's BLAS sums in another
    # order. In memory of their own, loaded weights give the same bits as those that a run has had from its start.
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    return Policy(model.eval(), tokenizer)


def _from_gguf(path: Path) -> tuple[Any, dict[str, list[str]]]:
    """The model in a GGUF file, its weights dequantised to fp32, and what of it does not fit.

    What `from_pretrained(gguf_file=…)` does, which needs the accelerate package only to place layers on devices.
    """
    from transformers.initialization import no_init_weights
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    try:
        config = AutoConfig.from_pretrained(path.parent, local_files_only=True, gguf_file=path.name)
        with no_init_weights():  # they are all replaced; what the file lacks is told below
            model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        tensors = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
        missing, unexpected = model.load_state_dict(tensors, strict=False)
    except (ValueError, KeyError, IndexError, RuntimeError) as error:
        raise CheckpointError(
            f"{path.name} cannot be loaded: {error}; expected a GGUF file of a causal model"
        ) from error
    model.tie_weights()
    tied = set(model.state_dict()) - {name for name, _ in model.named_parameters(remove_duplicate=True)}
    problems = {"missing_keys": sorted(set(missing) - tied), "unexpected_keys": sorted(unexpected)}
    return model, {kind: names for kind, names in problems.items() if names}


def gguf_in(path: Path) -> Path | None:
    """The GGUF file that is the model: the path itself, or the one in a folder without config.json."""
    if path.suffix == ".gguf" and path.is_file():
        return path
    found = sorted(path.glob("*.gguf")) if not (path / "config.json").exists() else []
    return found[0] if len(found) == 1 else None


def _check_folder(path: Path) -> None:
    if not path.is_dir():
        raise CheckpointError(f"policy folder not found: {path}; expected a local folder with config.json")
    names = sorted(p.name for p in path.iterdir())
    if "config.json" not in names:
        raise CheckpointError(f"{path.name}: found {names}, expected a config.json (transformers layout)")
    if not any(n.endswith(".safetensors") for n in names):
        pickled = [n for n in names if n.endswith((".bin", ".pt", ".pth", ".ckpt"))]
        hint = f"; {pickled} may run code when opened and is refused: convert it to safetensors" if pickled else ""
        raise CheckpointError(f"{path.name}: found {names}, expected *.safetensors weights{hint}")
    if not {"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json"} & set(names):
        raise CheckpointError(f"{path.name}: found {names}, expected a tokenizer (tokenizer.json)")
    index = path / "model.safetensors.index.json"
    if index.exists():
        shards = set(json.loads(index.read_text())["weight_map"].values())
        if absent := sorted(shards - set(names)):
            raise CheckpointError(f"{path.name}: shards {absent} named in the index are missing; expected all of them")


def save_policy(policy: Policy, folder: str | os.PathLike[str]) -> None:
    """Write the standard layout, or that of an adapter, to ``folder``; a reader sees the old folder or the whole new one,
    never a part.

    Everything goes to a hidden neighbour first, is flushed to disk, and takes the name by renaming. An existing folder
    is moved aside just before and removed after.
    """
    target = Path(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        if policy.adapter is None:
            policy.model.save_pretrained(staged, safe_serialization=True)
        else:
            adapters.write_adapter(policy, staged)
        policy.tokenizer.save_pretrained(staged)
        for file in staged.rglob("*"):
            if file.is_file():
                with file.open("rb") as handle:
                    os.fsync(handle.fileno())
        staged.chmod(0o755)
        if target.exists():
            aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
            target.rename(aside / target.name)
            staged.rename(target)
            shutil.rmtree(aside)
        else:
            staged.rename(target)
    except (
        Exception
    ) as error:  # a full disk is an error of their own for safetensors, and a plain Exception for tokenizers
        raise CheckpointError(f"could not save the policy to {target}: {error}; check space and permissions") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)
