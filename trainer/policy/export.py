"""Any model that can be loaded, as a plain folder: an adapter merged into its base, a GGUF file dequantised to fp32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainer.core.errors import ConfigError
from trainer.policy.adapters import is_adapter, merged
from trainer.policy.fingerprint import weights_hash
from trainer.policy.load import load_policy, save_policy


def export(model: str, out: Path, *, files: Path, merge: bool) -> dict[str, Any]:
    """Writes ``model`` (a folder or .gguf file, relative to ``files`` or not, or a name on the hub) to the new folder
    ``out``; what was written, for people. ``merge`` wants an adapter. Raises ConfigError and CheckpointError.
    """
    from trainer.loop.run import resolve_folder

    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"--out: {out} is not empty, expected a new folder")
    source = Path(model)
    folder = source if source.suffix == ".gguf" and source.is_file() else resolve_folder(files, model)
    if merge and not is_adapter(folder):
        raise ConfigError(f"{model} is no adapter (it has no adapter_config.json), so there is nothing to merge")
    policy = merged(load_policy(folder, files=files))
    save_policy(policy, out)
    return {
        "folder": str(out),
        "weights_hash": weights_hash(policy.model),
        "parameters": sum(p.numel() for p in policy.model.parameters()),
    }
