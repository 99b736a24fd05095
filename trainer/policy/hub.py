"""Models by their name on the Hugging Face hub: from its cache on this host, or downloaded into it once."""

from __future__ import annotations

import re
from pathlib import Path

from trainer.core.errors import ConfigError

_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(@[\w./-]+)?")
_TAKEN = ["*.safetensors", "*.json", "*.model", "*.txt", "*.jinja"]


def is_hub_name(reference: str, files: Path) -> bool:
    """Whether a checkpoint reference reads ``org/name`` or ``org/name@revision``, and nothing below ``files`` is called so."""
    return bool(_NAME.fullmatch(reference)) and not (files / reference).exists()


def hub_folder(reference: str) -> Path:
    """The folder of a model of the hub, in the transformers layout. What is in the cache is used as it is and not compared
    with the hub again, so that a run goes on from the base that it started from. Raises ConfigError saying what is missing.
    """
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError

    name, _, revision = reference.partition("@")

    def fetch(*, cached: bool) -> Path:
        found = snapshot_download(
            name, revision=revision or None, local_files_only=cached, allow_patterns=_TAKEN, ignore_patterns=["*/*"]
        )
        return Path(found)

    try:
        return fetch(cached=True)
    except LocalEntryNotFoundError:
        pass
    try:
        return fetch(cached=False)
    except LocalEntryNotFoundError as error:
        why = (
            "HF_HUB_OFFLINE is set: unset it"
            if constants.HF_HUB_OFFLINE
            else f"{constants.ENDPOINT} could not be reached: connect, or set HF_ENDPOINT to a mirror"
        )
        raise _missing(reference, why) from error
    except GatedRepoError as error:
        raise _missing(reference, "access to it must be granted: name HF_TOKEN in the run's secrets") from error
    except (HfHubHTTPError, OSError) as error:
        said = str(error).strip().splitlines()[0]
        raise _missing(reference, f"{constants.ENDPOINT} answers: {said}") from error


def _missing(reference: str, why: str) -> ConfigError:
    return ConfigError(
        f"policy.checkpoint: found no {reference!r} below the file storage, nor that model of the hub in the cache of this "
        f"host, and it cannot be downloaded, because {why}; or name a local folder"
    )
