"""The whole `TrainState` in one folder: safetensors and JSON, written atomically, manifest last, never a pickle.

<folder>/policies/<name>/   standard transformers layout (loads with AutoModelForCausalLM)
<folder>/optimizer.<name>.safetensors
<folder>/memory.safetensors  tensors that parts keep
<folder>/state.json          counters, phase, memory, configuration, versions
<folder>/manifest.json       hash and size of every file above; a folder without it is not a checkpoint
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from trainer.contract.config import RlConfig, SftConfig
from trainer.core.errors import CheckpointError
from trainer.core.state import Counters, PhaseState, PolicyState, TrainState
from trainer.loop.optim import load_optimizer_tensors, make_optimizer, optimizer_tensors
from trainer.policy.fingerprint import weights_hash
from trainer.policy.load import load_policy, save_policy

CHECKPOINT_VERSION = 1
_TENSOR = "__tensor__"


def versions() -> dict[str, str]:
    """What the bits of a run depend on besides its configuration."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": str(torch.get_num_threads()),
        **{p: version(p) for p in ("torch", "transformers", "safetensors")},
    }


def save_checkpoint(folder: Path, state: TrainState, config: RlConfig | SftConfig) -> dict[str, Any]:
    """Writes a checkpoint and returns its manifest. Raises CheckpointError (an OSError) when the disk is full or the
    folder cannot be written; nothing half-written is left and older checkpoints stay."""
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        kept = {name: entry for name, entry in state.policies.items() if name != "reference"}
        for name, entry in kept.items():
            save_policy(entry.policy, partial / "policies" / name)
            if entry.optimizer is not None:
                tensors = optimizer_tensors(entry.policy.model, entry.optimizer)
                save_file(tensors, partial / f"optimizer.{name}.safetensors")
        tensors = {}
        memory = _split(state.memory, tensors, "")
        save_file(tensors, partial / "memory.safetensors")
        document = {
            "schema_version": CHECKPOINT_VERSION,
            "counters": asdict(state.counters),
            "phase": asdict(state.phase),
            "memory": memory,
            "evaluated": state.evaluated,
            "policies": sorted(kept),
            "config": config.model_dump(mode="json"),
            "versions": versions(),
        }
        (partial / "state.json").write_text(json.dumps(document))
        manifest = {
            "schema_version": CHECKPOINT_VERSION,
            "iteration": state.counters.iteration,
            "weights_hash": weights_hash(state.policies["policy"].policy.model),
            "files": {str(p.relative_to(partial)): _entry(p) for p in sorted(partial.rglob("*")) if p.is_file()},
        }
        _write_synced(partial / "manifest.json", json.dumps(manifest, indent=1))
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(partial, folder)
        return manifest
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise CheckpointError(
            f"could not write the checkpoint of iteration {state.counters.iteration} to {folder}: {error}; earlier "
            "checkpoints are kept. Free space or choose another folder, then resume"
        ) from error


def load_checkpoint(folder: Path, config: RlConfig | SftConfig) -> TrainState:
    """The state of a complete, untampered checkpoint. Raises CheckpointError saying what is wrong with it."""
    manifest = read_manifest(folder)
    for name, entry in manifest["files"].items():
        path = folder / name
        if not path.is_file() or _entry(path) != entry:
            raise CheckpointError(
                f"checkpoint {folder}: file {name!r} is missing or differs from its manifest; use an older checkpoint"
            )
    document = json.loads((folder / "state.json").read_text())
    if document["schema_version"] != CHECKPOINT_VERSION:
        raise CheckpointError(
            f"checkpoint {folder}: schema version {document['schema_version']}, this release reads {CHECKPOINT_VERSION}"
        )
    policies = {}
    for name in document["policies"]:
        policy = load_policy(folder / "policies" / name)
        path = folder / f"optimizer.{name}.safetensors"
        optimizer = None
        if path.exists():
            optimizer = make_optimizer(policy.model, config.optimizer)
            load_optimizer_tensors(policy.model, optimizer, load_file(path))
        policies[name] = PolicyState(policy, optimizer)
    tensors = load_file(folder / "memory.safetensors")
    return TrainState(
        policies=policies,
        counters=Counters(**document["counters"]),
        phase=PhaseState(**document["phase"]),
        memory=_join(document["memory"], tensors),
        evaluated=document["evaluated"],
    )


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a checkpoint folder. Raises CheckpointError where there is none or it cannot be read."""
    path = folder / "manifest.json"
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder} is not a complete checkpoint: {error}") from error
    return manifest


def complete_checkpoints(parent: Path) -> list[Path]:
    """Complete checkpoint folders under ``parent``, oldest iteration first."""
    return sorted(p.parent for p in parent.glob("it-*/manifest.json"))


def newest_checkpoint(run: Path) -> Path | None:
    """Where a run resumes: the newest complete checkpoint of its newest attempt that has one."""
    attempts = sorted((run / "attempts").glob("*"), key=lambda p: int(p.name) if p.name.isdigit() else -1)
    for attempt in reversed(attempts):
        found = complete_checkpoints(attempt / "checkpoints")
        if found:
            return found[-1]
    return None


def folder_size(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def _entry(path: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    with path.open("rb") as f:
        while chunk := f.read(1 << 20):
            digest.update(chunk)
    return {"sha256": digest.hexdigest(), "size": path.stat().st_size}


def _write_synced(path: Path, text: str) -> None:
    with path.open("w") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())


def _split(value: Any, tensors: dict[str, torch.Tensor], path: str) -> Any:
    if isinstance(value, torch.Tensor):
        tensors[path] = value.contiguous()
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
