"""Names the part that raised."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainer.core.errors import MethodError, UnsqueezeError


@contextmanager
def guarded(slot: str, part: Any) -> Iterator[None]:
    """Turns whatever a part raises into a MethodError that names the part and the slot; our own errors pass."""
    try:
        yield
    except (UnsqueezeError, OSError, MemoryError):
        raise
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise MethodError(
            f"{type(part).__name__} (slot {slot!r}) raised {type(error).__name__}: {error} "
            f"at {Path(where.filename).name}:{where.lineno}"
        ) from error
