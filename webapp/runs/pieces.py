"""A file that arrives in pieces, each where the last one ended. What arrived before a break stays."""

from collections.abc import Iterable
from pathlib import Path

from django.core.exceptions import ValidationError

from webapp.runs.storage import locked


class WrongOffset(Exception):
    """The piece does not begin where the file ends; `offset` is where it does."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


def arrived(path: Path) -> int:
    """How many bytes are there."""
    return path.stat().st_size if path.exists() else 0


def append(path: Path, *, called: str, wanted: int, offset: int, pieces: Iterable[bytes]) -> int:
    """Writes a piece at the end of a file of `wanted` bytes; where it ends now. Raises WrongOffset, or ValidationError."""
    with locked(f"pieces {path}"):
        here = arrived(path)
        if here != offset:
            raise WrongOffset(here)
        with path.open("ab") as file:
            for data in pieces:
                if here + len(data) > wanted:
                    raise ValidationError(f"{called}: more bytes came than the {wanted} announced.", code="too_long")
                file.write(data)
                here += len(data)
    return here
