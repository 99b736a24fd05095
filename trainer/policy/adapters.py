"""LoRA (arXiv 2106.09685) by peft, inside the model's own modules: W x + (α/r)·B·A x with W frozen.

The model keeps its class, so that everything that reads it goes on working. One model may carry two adapters, the trained
one and a frozen reference, and a `Policy` says which of them it is; the base itself is the model with adapters off. So a
reference costs no second model, and a policy that has not moved differs from it by exactly 0.

On disk an adapter is peft's own layout (adapter_config.json, adapter_model.safetensors, tokenizer) and ``base.json``,
which names the base that it belongs to.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from trainer.contract.config import LORA_TARGETS, LoraSection
from trainer.core import rng
from trainer.core.errors import CheckpointError, ConfigError
from trainer.policy.fingerprint import weights_hash

if TYPE_CHECKING:
    from trainer.policy.load import Policy

TRAINED, REFERENCE = "default", "reference"
CONFIG, WEIGHTS, BASE = "adapter_config.json", "adapter_model.safetensors", "base.json"
_PREFIX = "base_model.model."


@dataclass(frozen=True)
class Base:
    """The model that an adapter belongs to: ``uri`` as a configuration names it, and the hash of its weights."""

    uri: str
    weights_hash: str


@dataclass(frozen=True)
class Adapter:
    """Which adapter of its model a policy is; ``name`` None is the base with all of them off. ``config`` is peft's."""

    base: Base
    config: Any
    name: str | None = TRAINED


# In the model


def is_plain_lora(module: Any) -> bool:
    """Whether a module is a Linear with LoRA beside it whose sum with the weight says all that it does."""
    return (
        hasattr(module, "lora_A")
        and type(getattr(module, "base_layer", None)) is nn.Linear
        and not (module.merged or module.lora_variant or any(module.lora_bias.values()))
    )


def weight_of(module: Any) -> torch.Tensor:
    """The weight of a Linear, with the active adapter of a plain LoRA added: W + (α/r)·B·A."""
    weight: torch.Tensor = module.weight
    if type(module) is not nn.Linear and not module.disable_adapters:
        for name in module.active_adapters:
            if name in module.lora_A:
                weight = weight + module.get_delta_weight(name)
    return weight


def _layers(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if hasattr(module, "lora_A")]


def version_of(model: nn.Module) -> tuple[Any, ...]:
    """Another value wherever the model may compute something else: a parameter was changed in place, as far as torch's
    counters see it, or other adapters are on."""
    switches = ((layer.disable_adapters, *layer.active_adapters) for layer in _layers(model))
    return (*((p.data_ptr(), p._version) for p in model.parameters()), *switches)


@contextmanager
def using(policy: Policy) -> Iterator[None]:
    """Inside, the model computes what this policy is; outside, what the trained adapter makes of it."""
    if policy.adapter is None or policy.adapter.name == TRAINED:
        yield
        return
    layers = _layers(policy.model)
    for layer in layers:
        _select(layer, policy.adapter.name)
    try:
        yield
    finally:
        for layer in layers:
            _select(layer, TRAINED)


def _select(layer: Any, name: str | None) -> None:
    layer.enable_adapters(name is not None)
    if name is not None:
        layer.set_adapter([name], inference_mode=name != TRAINED)


def add_adapter(policy: Policy, lora: LoraSection, *, base: Base, seed: int) -> Policy:
    """A fresh adapter on a whole model, which is changed in place: A drawn by the seed, B zero, the rest frozen.

    Raises ConfigError where the model has none of the target modules.
    """
    from peft import LoraConfig

    assert lora.rank is not None
    config = LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, target_modules=list(lora.targets), task_type="CAUSAL_LM",
        base_model_name_or_path=base.uri,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.key(seed, "lora") >> 1)
        _inject(policy.model, config, TRAINED)
    return replace(policy, adapter=Adapter(base, config))


def _inject(model: nn.Module, config: Any, name: str) -> None:
    from peft import inject_adapter_in_model

    with warnings.catch_warnings():
        # A second adapter on one model is what is wanted here.
        warnings.filterwarnings("ignore", message="Already found a `peft_config`")
        try:
            inject_adapter_in_model(config, model, name)
        except ValueError as error:
            raise ConfigError(
                f"policy.lora.targets: found {sorted(config.target_modules)}, which the model does not have; {error}"
            ) from error
    for layer in _layers(model):
        if TRAINED in layer.lora_A:
            _select(layer, TRAINED)


def goes_on_with(policy: Policy, lora: LoraSection) -> Policy:
    """The policy itself, where a configuration's adapter is the one that it has. Raises ConfigError where they differ."""
    assert policy.adapter is not None
    config = policy.adapter.config
    if lora.rank is None:
        return policy
    found = (config.r, config.lora_alpha, tuple(t for t in LORA_TARGETS if t in config.target_modules))
    wanted = (lora.rank, lora.alpha, tuple(t for t in LORA_TARGETS if t in lora.targets))
    if found != wanted:
        raise ConfigError(
            f"policy.lora: found rank, α and targets {wanted}, but the base checkpoint is an adapter with {found}; leave "
            "policy.lora.rank empty to go on with it, or make a plain model of it first (python -m trainer merge)"
        )
    return policy


def set_dropout(policy: Policy, share: float) -> None:
    """Dropout of the trained adapter's input, from the run's configuration; what a file says is left aside."""
    for layer in _layers(policy.model):
        if TRAINED in layer.lora_dropout:
            layer.lora_dropout[TRAINED] = nn.Dropout(share) if share else nn.Identity()


def base_of(policy: Policy) -> Policy:
    """The frozen base on the same memory."""
    assert policy.adapter is not None
    return replace(policy, adapter=replace(policy.adapter, name=None))


def reference_from(policy: Policy, folder: Path) -> Policy:
    """The adapter in ``folder`` as a second, frozen one on the policy's model."""
    assert policy.adapter is not None
    config = _read_config(folder)
    _inject(policy.model, config, REFERENCE)
    _read_weights(policy.model, folder, REFERENCE)
    return replace(policy, adapter=replace(policy.adapter, config=config, name=REFERENCE))


def merged(policy: Policy) -> Policy:
    """The policy as a plain model, W + (α/r)·B·A in place of W. Its model is changed in place: the adapter is gone."""
    if policy.adapter is None:
        return policy
    for name, module in list(policy.model.named_modules()):
        if hasattr(module, "lora_A"):
            if not is_plain_lora(module):
                raise ConfigError(f"{name} is no plain LoRA of a Linear; only that can be merged")
            module.base_layer.weight.data = weight_of(module).detach().clone()
            parent, _, child = name.rpartition(".")
            setattr(policy.model.get_submodule(parent), child, module.base_layer)
    for parameter in policy.model.parameters():
        parameter.requires_grad_(True)
    policy.model._hf_peft_config_loaded = False
    if hasattr(policy.model, "peft_config"):
        del policy.model.peft_config
    return replace(policy, adapter=None)


# Identity


def tensors_of(model: nn.Module, name: str = TRAINED) -> dict[str, torch.Tensor]:
    """An adapter's tensors by peft's names in a file."""
    mark = f".{name}."
    return {
        _PREFIX + key.replace(mark, "."): value
        for key, value in model.state_dict().items()
        if ".lora_" in key and mark in key
    }


def adapter_hash(policy: Policy) -> str:
    """Identity of base and adapter together. An adapter whose B is 0 changes nothing: that one has its base's hash."""
    assert policy.adapter is not None
    base = policy.adapter.base.weights_hash
    tensors = tensors_of(policy.model, policy.adapter.name) if policy.adapter.name else {}
    if not any(bool(value.any()) for key, value in tensors.items() if ".lora_B." in key):
        return base
    scale = {module.scaling[policy.adapter.name] for module in _layers(policy.model)}
    return hashlib.sha256(f"lora\0{base}\0{sorted(scale)}\0{weights_hash(tensors)}".encode()).hexdigest()


# On disk


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter and no whole model."""
    return (folder / CONFIG).is_file() and not (folder / "config.json").is_file()


def read_base(folder: Path) -> Base:
    """What an adapter's ``base.json`` says. Raises CheckpointError."""
    try:
        document = json.loads((folder / BASE).read_text())
        return Base(str(document["uri"]), str(document["weights_hash"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f'{folder.name}: this adapter does not say which base it belongs to ({BASE}: {error}); expected {{"uri": '
            '…, "weights_hash": …}, which every adapter saved here has'
        ) from error


def folder_of_base(folder: Path, files: Path) -> Path:
    """Where the base of an adapter lies: below the storage root, or below a folder around the adapter, which is the root
    that the adapter was saved in. Raises CheckpointError naming what is gone."""
    uri = read_base(folder).uri
    roots = [files, *folder.resolve().parents] if not Path(uri).is_absolute() else [files]
    for root in roots:
        found = root / uri
        if (found / "policies" / "policy").is_dir():
            found = found / "policies" / "policy"
        if found.is_dir():
            return found
    raise CheckpointError(
        f"{folder.name}: this adapter belongs to the base {uri!r}, which is gone; put it back there, or name the storage root "
        "with --files"
    )


def attach(base: Policy, folder: Path) -> Policy:
    """The adapter in ``folder`` on its base's model, which is changed in place. Raises CheckpointError where it is damaged
    or belongs to another base."""
    wanted = read_base(folder)
    found = weights_hash(base.model)
    if found != wanted.weights_hash:
        raise CheckpointError(
            f"{folder.name}: the base at {wanted.uri!r} is another model than the one that this adapter was trained on: "
            f"its weights hash is {found}, expected {wanted.weights_hash}"
        )
    config = _read_config(folder)
    _inject(base.model, config, TRAINED)
    _read_weights(base.model, folder, TRAINED)
    return replace(base, adapter=Adapter(wanted, config))


def _read_config(folder: Path) -> Any:
    from peft import LoraConfig

    try:
        document = json.loads((folder / CONFIG).read_text())
        if document.get("peft_type") != "LORA":
            raise ValueError(f"peft_type is {document.get('peft_type')!r}, expected LORA")
        odd = [k for k in ("use_dora", "modules_to_save", "target_parameters", "lora_bias") if document.get(k)]
        if odd or document.get("bias", "none") != "none":
            raise ValueError(f"it uses {', '.join(odd) or 'bias'}, which this release does not")
        known = set(LoraConfig.__dataclass_fields__)
        config = LoraConfig(**{key: value for key, value in document.items() if key in known})
        config.inference_mode, config.lora_dropout = False, 0.0
        return config
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{folder.name}/{CONFIG} cannot be used: {error}") from error


def _read_weights(model: nn.Module, folder: Path, name: str) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder.name}/{WEIGHTS} cannot be read: {error}") from error
    wanted = tensors_of(model, name)
    if missing := sorted(wanted.keys() ^ found.keys()):
        raise CheckpointError(f"{folder.name}: {missing[0]!r} is in only one of {CONFIG} and {WEIGHTS}")
    with torch.no_grad():
        for key, tensor in wanted.items():
            if tensor.shape != found[key].shape:
                raise CheckpointError(
                    f"{folder.name}: {key} has shape {tuple(found[key].shape)}, expected {tuple(tensor.shape)}"
                )
            tensor.copy_(found[key])


def write_adapter(policy: Policy, folder: Path) -> None:
    """The three files of an adapter in an existing folder; the tokenizer is the caller's."""
    from safetensors.torch import save_file

    adapter = policy.adapter
    assert adapter is not None
    assert adapter.name is not None
    tensors = {key: value.detach().contiguous() for key, value in tensors_of(policy.model, adapter.name).items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    document = adapter.config.to_dict()
    document |= {"target_modules": sorted(adapter.config.target_modules), "inference_mode": True}
    (folder / CONFIG).write_text(json.dumps(document, indent=1, sort_keys=True, default=str))
    base = {"schema_version": 1, "uri": adapter.base.uri, "weights_hash": adapter.base.weights_hash}
    (folder / BASE).write_text(json.dumps(base, indent=1))
