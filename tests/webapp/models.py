"""Small model files as they lie on disk."""

from __future__ import annotations

import json
import struct
from pathlib import Path


def weights(data: bytes = b"\0" * 8) -> bytes:
    """A safetensors file with one tensor of bytes."""
    table = json.dumps({"w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
    return struct.pack("<Q", len(table)) + table + data


def model_folder(folder: Path, data: bytes = b"\0" * 8) -> Path:
    """config.json and one weights file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "model.safetensors").write_bytes(weights(data))
    return folder


def gguf_file(path: Path) -> Path:
    """A GGUF file with one small tensor; no trainer could load it."""
    import numpy as np
    from gguf import GGUFWriter

    writer = GGUFWriter(str(path), "llama")
    writer.add_name("tiny")
    writer.add_block_count(1)
    writer.add_tensor("token_embd.weight", np.zeros((4, 8), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
