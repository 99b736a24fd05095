"""Small files that somebody else, or a later attempt, reads."""

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Writes a file that is there whole or not at all, whatever happens meanwhile: a full disk, a kill, another writer.
    Raises OSError, and leaves what was there.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
