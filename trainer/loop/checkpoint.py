"""The whole `TrainState` in one folder: safetensors and JSON, written atomically, manifest last, never a pickle.

<folder>/policies/<name>/   standard transformers layout (loads with AutoModelForCausalLM), or peft's of an adapter
<folder>/optimizer.<name>.safetensors
<folder>/heads/<name>.safetensors, optimizer.head.<name>.safetensors   extra outputs of the policy, if any
<folder>/memory.safetensors  tensors that parts keep
<folder>/state.json          counters, phase, memory, configuration, versions
<folder>/manifest.json       hash and size of every file above; a folder without it is not a checkpoint

Which checkpoints of a run there are, and which of them are kept, is in `trainer.loop.checkpoint_files`.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from trainer import __version__
from trainer.contract import versions as schemas
from trainer.contract.config import RlConfig, SftConfig
from trainer.core.errors import CheckpointError, Superseded
from trainer.core.state import Counters, HeadState, PhaseState, PolicyState, TrainState
from trainer.core.world import World
from trainer.loop.checkpoint_files import MANIFEST, entry_of, verify
from trainer.loop.optim import load_optimizer_tensors, make_optimizer, optimizer_tensors
from trainer.policy.hardware import placed
from trainer.policy.heads import new_heads
from trainer.policy.load import load_policy, save_policy

_TENSOR = "__tensor__"


def versions() -> dict[str, str]:
    """What the bits of a run depend on besides its configuration."""
    return {
        "unsqueeze": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": _processor(),
        "threads": str(torch.get_num_threads()),
        **{p: version(p) for p in ("torch", "transformers", "safetensors")},
        # Only runs with adapters need it.
        **({"peft": version("peft")} if find_spec("peft") else {}),
    }


def _processor() -> str:
    """The processor's kind: its vector instructions and caches decide in which order sums are rounded."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text().split("\n\n")[0].splitlines() if told.exists() else []
    fields = dict(line.replace("\t", "").split(": ", 1) for line in lines if ": " in line)
    model = " ".join(fields[name] for name in ("model name", "cpu family", "model") if name in fields)
    return f"{model or platform.processor()} {torch.backends.cpu.get_cpu_capability()}".strip()


def save_checkpoint(
    folder: Path,
    state: TrainState,
    config: RlConfig | SftConfig,
    *,
    fence: Callable[[], None] | None = None,
    world: World | None = None,
) -> dict[str, Any]:
    """Writes a checkpoint and returns its manifest; of the processes of ``world`` the first one writes, whole tensors,
    which any number of processes goes on from. ``fence`` raises Superseded; it is asked last, when all is written and
    before the folder takes its name: a process may have slept for hours in between. Raises CheckpointError (an OSError)
    when the disk is full or the folder cannot be written; nothing half-written is left and older checkpoints stay."""
    moments = {
        name: optimizer_tensors(entry.trained, entry.optimizer)
        for name, entry in state.policies.items()
        if entry.optimizer is not None
    }
    return (world or World()).first_only(lambda: _write(folder, state, config, moments, fence))


def _write(
    folder: Path,
    state: TrainState,
    config: RlConfig | SftConfig,
    moments: Mapping[str, dict[str, torch.Tensor]],
    fence: Callable[[], None] | None,
) -> dict[str, Any]:
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        kept = {name: entry for name, entry in state.policies.items() if name != "reference"}
        for name, entry in kept.items():
            save_policy(entry.policy, partial / "policies" / name)
            if name in moments:
                save_file(moments[name], partial / f"optimizer.{name}.safetensors")
        for name, head in state.heads.items():
            (partial / "heads").mkdir(exist_ok=True)
            save_file(on_cpu(head.module.state_dict()), partial / "heads" / f"{name}.safetensors")
            save_file(optimizer_tensors(head.module, head.optimizer), partial / f"optimizer.head.{name}.safetensors")
        tensors: dict[str, torch.Tensor] = {}
        memory = _split(state.memory, tensors, "")
        save_file(tensors, partial / "memory.safetensors")
        document = {
            "schema_version": schemas.TRAIN_STATE.current,
            "release": __version__,
            "counters": asdict(state.counters),
            "phase": asdict(state.phase),
            "memory": memory,
            "evaluated": state.evaluated,
            "validation": state.validation,
            "validated": state.validated,
            "policies": sorted(kept),
            "heads": sorted(state.heads),
            "config": config.model_dump(mode="json"),
            "versions": versions(),
        }
        (partial / "state.json").write_text(json.dumps(document))
        files = [p for p in sorted(partial.rglob("*")) if p.is_file()]
        manifest = {
            "schema_version": schemas.MANIFEST.current,
            "release": __version__,
            "iteration": state.counters.iteration,
            "weights_hash": state.policies["policy"].policy.weights_hash,
            # The validation of these very weights; what "the best checkpoint" is decided by.
            "metrics": state.validation if state.validated == state.counters.iteration else {},
            "files": {p.relative_to(partial).as_posix(): entry_of(p) for p in files},
        }
        for path in files:
            _sync(path)
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=1))
        _sync(partial / MANIFEST)
        if fence is not None:
            fence()
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(partial, folder)
        return manifest
    except Superseded:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise CheckpointError(
            f"could not write the checkpoint of iteration {state.counters.iteration} to {folder}: {error}; earlier "
            "checkpoints are kept. Free space or choose another folder, then resume"
        ) from error


def load_checkpoint(folder: Path, config: RlConfig | SftConfig, *, files: Path = Path(".")) -> TrainState:
    """The state of a complete, untampered checkpoint. ``files`` is the storage root, where an adapter finds its base.
    Raises CheckpointError saying what is wrong with it."""
    verify(folder)
    document = _migrated_state(folder)
    policies = {}
    for name in document["policies"]:
        policy = placed(load_policy(folder / "policies" / name, files=files), config.hardware)
        path = folder / f"optimizer.{name}.safetensors"
        optimizer = None
        if path.exists():
            optimizer = make_optimizer(policy.model, config.optimizer)
            load_optimizer_tensors(policy.model, optimizer, load_file(path))
        policies[name] = PolicyState(policy, optimizer)
    heads = new_head_states(config, policies["policy"].policy.model)
    if sorted(heads) != document.get("heads", []):
        raise CheckpointError(
            f"checkpoint {folder}: found heads {document.get('heads', [])}, expected {sorted(heads)} as the configuration asks"
        )
    for name, head in heads.items():
        head.module.load_state_dict(load_file(folder / "heads" / f"{name}.safetensors"))
        load_optimizer_tensors(head.module, head.optimizer, load_file(folder / f"optimizer.head.{name}.safetensors"))
    tensors = load_file(folder / "memory.safetensors")
    return TrainState(
        heads=heads,
        policies=policies,
        counters=Counters(**document["counters"]),
        phase=PhaseState(**document["phase"]),
        memory=_join(document["memory"], tensors),
        evaluated=document["evaluated"],
        validation=document.get("validation", {}),
        validated=document.get("validated", -1),
    )


def new_head_states(config: RlConfig | SftConfig, model: Any) -> dict[str, HeadState]:
    """Fresh heads with optimisers, as the base algorithm asks."""
    if not isinstance(config, RlConfig):
        return {}
    heads = new_heads(config.algorithm, model)
    return {name: HeadState(module, make_optimizer(module, config.optimizer)) for name, module in heads.items()}


def _migrated_state(folder: Path) -> dict[str, Any]:
    try:
        return schemas.TRAIN_STATE.migrate(json.loads((folder / "state.json").read_text()))
    except schemas.UnreadableVersion as error:
        raise CheckpointError(f"checkpoint {folder}: {error}") from error


def on_cpu(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Files hold CPU tensors, so that any host reads them."""
    return {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}


def _sync(path: Path) -> None:
    with path.open("rb") as f:
        os.fsync(f.fileno())


def _split(value: Any, tensors: dict[str, torch.Tensor], path: str) -> Any:
    if isinstance(value, torch.Tensor):
        tensors[path] = value.cpu().contiguous()
        return {_TENSOR: path}
    if isinstance(value, dict):
        return {k: _split(v, tensors, f"{path}/{k}") for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_split(v, tensors, f"{path}/{i}") for i, v in enumerate(value)]
    return value


def _join(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, dict):
        if set(value) == {_TENSOR}:
            return tensors[value[_TENSOR]]
        return {k: _join(v, tensors) for k, v in value.items()}
    if isinstance(value, list):
        return [_join(v, tensors) for v in value]
    return value
