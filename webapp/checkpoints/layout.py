"""Which files a model may consist of: what is taken in by upload and import, and what is refused, with the reason."""

import json
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.core.exceptions import ValidationError

from webapp.core.counts import counted

SUFFIXES = (".safetensors", ".gguf", ".json", ".txt", ".model", ".jinja")
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".npy", ".npz")
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
CARD = "card.json"
MANIFEST = "manifest.json"
LARGEST_JSON = 64 << 20
_HEADER = 8
Reader = Callable[[str, int, int], bytes]
"""(name, begin, end) → those bytes of a file of the model."""


def check_name(name: str) -> None:
    """Raises ValidationError unless the name is a plain file name of a kind that is taken."""
    if not name or name in (".", "..") or re.search(r'[/\\\x00-\x1f\x7f:*?"<>|]', name):
        raise _refused(
            "bad_name", f"{name!r} is not taken: expected a plain file name, without folders or control characters"
        )
    if name.startswith(".") or len(name.encode()) > 200:
        raise _refused("bad_name", f"{name!r} is not taken: expected a visible name of at most 200 bytes")
    lower = name.lower()
    if lower.endswith(PICKLES):
        raise _refused(
            "pickle",
            f"{name!r} is not taken: it may run code when it is opened; convert the weights to .safetensors",
        )
    if lower == MANIFEST:
        raise _refused("bad_name", f"{name!r} is not taken: the manifest is written here, from what arrives")
    if not lower.endswith(SUFFIXES):
        raise _refused("bad_kind", f"{name!r} is not taken: expected one of {', '.join(SUFFIXES)}")


def check_names(names: Iterable[str]) -> None:
    """Raises ValidationError unless the files together can be a model: every name is taken, none twice (also not in
    another case), and there are weights with what belongs to them.
    """
    seen: dict[str, str] = {}
    for name in names:
        check_name(name)
        if name.lower() in seen:
            raise _refused("twice", f"{name!r} is named twice (as {seen[name.lower()]!r}); expected every name once")
        seen[name.lower()] = name
    found = sorted(seen.values())
    gguf = [name for name in found if name.endswith(".gguf")]
    weights = [name for name in found if name.endswith(".safetensors")]
    if gguf:
        if len(gguf) > 1 or weights:
            raise _refused(
                "not_a_checkpoint", f"found {', '.join(gguf + weights)}; expected one .gguf file and no other weights"
            )
        return
    if CONFIG not in found or not weights:
        raise _refused(
            "not_a_checkpoint",
            f"found {', '.join(found) or 'nothing'}; expected config.json and .safetensors files in the transformers layout, "
            "or one .gguf file",
        )


def check_content(sizes: Mapping[str, int], read: Reader) -> dict[str, Any]:
    """Raises ValidationError when a file is not what its name says, or a shard is missing; what it is, for people.

    Only headers and JSON are read: config.json, the index, and the table at the start of every weights file, which says
    how long the file must be.
    """
    check_names(sizes)
    documents = {}
    for name, size in sizes.items():
        if name.endswith(".json"):
            documents[name] = _json(name, size, read)
    for name, size in sizes.items():
        if name.endswith(".safetensors"):
            _check_safetensors(name, size, read)
    if INDEX in sizes:
        wanted = documents[INDEX].get("weight_map")
        shards = set(wanted.values()) if isinstance(wanted, dict) else set()
        if missing := sorted(str(shard) for shard in shards if shard not in sizes):
            raise _refused(
                "shard_missing", f"{INDEX} names {', '.join(missing)}, which is not there; expected every shard"
            )
    gguf = next((name for name in sizes if name.endswith(".gguf")), None)
    if gguf is not None and read(gguf, 0, 4) != b"GGUF":
        raise _refused("not_gguf", f"{gguf} does not start as a GGUF file does")
    config = documents.get(CONFIG, {})
    return {
        "format": "gguf" if gguf else "safetensors",
        **{
            key: config[key]
            for key in ("model_type", "hidden_size", "num_hidden_layers", "vocab_size")
            if key in config
        },
    }


def _json(name: str, size: int, read: Reader) -> dict[str, Any]:
    if size > LARGEST_JSON:
        raise _refused("too_large", f"{name} has {counted(size, 'byte')}; JSON of at most {LARGEST_JSON} is read")
    try:
        document = json.loads(read(name, 0, size))
    except (ValueError, RecursionError) as error:
        raise _refused("not_json", f"{name} is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise _refused("not_json", f"{name} holds a {type(document).__name__}, expected a JSON object")
    return document


def _check_safetensors(name: str, size: int, read: Reader) -> None:
    try:
        (length,) = struct.unpack("<Q", read(name, 0, _HEADER))
        if length > min(size - _HEADER, LARGEST_JSON):
            raise ValueError(f"its table would have {counted(length, 'byte')}")
        table = json.loads(read(name, _HEADER, _HEADER + length))
        ends = [entry["data_offsets"][1] for key, entry in table.items() if key != "__metadata__"]
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise _refused("not_safetensors", f"{name} is no safetensors file: {error}") from error
    wanted = _HEADER + length + max(ends, default=0)
    if wanted != size:
        raise _refused(
            "truncated", f"{name} has {counted(size, 'byte')}, but its table says {wanted}; was it cut short?"
        )


def _refused(code: str, text: str) -> ValidationError:
    return ValidationError(text, code=code)
