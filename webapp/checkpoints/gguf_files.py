"""What a GGUF file says about itself. Read with the `gguf` package, which needs no torch."""

from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError

SHOWN = ("general.name", "general.architecture", "general.license", "general.quantization_version")


def about_gguf(path: Path) -> dict[str, Any]:
    """For people: name, architecture, sizes, how many tensors of which type. Raises ValidationError for a file that
    cannot be read, or ends early.
    """
    from gguf import GGUFReader

    try:
        reader = GGUFReader(path)
        fields = {key: reader.fields[key].contents() for key in SHOWN if key in reader.fields}
        architecture = str(fields.get("general.architecture", ""))
        for name in ("block_count", "embedding_length", "context_length", "vocab_size"):
            if (found := reader.fields.get(f"{architecture}.{name}")) is not None:
                fields[name] = found.contents()
        types: dict[str, int] = {}
        parameters = 0
        for tensor in reader.tensors:
            types[tensor.tensor_type.name] = types.get(tensor.tensor_type.name, 0) + 1
            parameters += int(tensor.n_elements)
    except (ValueError, IndexError, KeyError, OverflowError, OSError) as error:
        raise ValidationError(f"{path.name} cannot be read as GGUF: {error}", code="not_gguf") from error
    if not architecture or not types:
        raise ValidationError(f"{path.name} holds no model: no architecture or no tensors", code="not_gguf")
    return {
        "gguf": {key.removeprefix("general."): _plain(value) for key, value in fields.items()},
        "parameters": parameters,
        "tensor_types": types,
        "model_type": architecture,
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else str(value)
